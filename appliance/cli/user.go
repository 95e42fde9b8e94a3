package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type userCommands struct {
	Add    userAdd    `cmd:"" help:"Add a person who logs in with a password."`
	List   userList   `cmd:"" help:"List who may log in."`
	Update userUpdate `cmd:"" help:"Change what a person may do, or their password. Their sessions end."`
	Remove userRemove `cmd:"" help:"Remove a person. Their sessions and open streams end."`
}

type userAdd struct {
	client
	User         string   `arg:"" help:"What they are called."`
	Role         string   `enum:"viewer,operator,admin" default:"viewer" help:"viewer, operator or admin."`
	Camera       []string `help:"Only these cameras; all by default."`
	PasswordFile string   `required:"" placeholder:"FILE" help:"File that holds the password alone; - reads it from standard input."`
}

// Run adds the user.
func (c *userAdd) Run(ctx context.Context, env *Env, g *grammar) error {
	password, err := readPassword(c.PasswordFile, env.Stdin)
	if err != nil {
		return err
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	u, err := vedettev1.NewUserServiceClient(conn).CreateUser(ctx, &vedettev1.CreateUserRequest{
		UserId: c.User, User: &vedettev1.User{Role: c.Role, Cameras: fullNames(c.Camera), Password: password},
	})
	if err != nil {
		return plain(err)
	}
	return c.show(env, u)
}

func fullNames(ids []string) (names []string) {
	for _, id := range ids {
		names = append(names, fullName(id))
	}
	return names
}

func (c *client) show(env *Env, users ...*vedettev1.User) error {
	if c.Output == "json" {
		messages := make([]proto.Message, len(users))
		for i, u := range users {
			messages[i] = u
		}
		return printJSON(env.Stdout, messages...)
	}
	rows := [][]string{{"USER", "ROLE", "CAMERAS", "MAY LOG IN", "CHANGED"}}
	for _, u := range users {
		cameras, in := "all", "yes"
		if len(u.GetCameras()) > 0 {
			ids := make([]string, len(u.GetCameras()))
			for i, n := range u.GetCameras() {
				ids[i] = shortName(n)
			}
			cameras = strings.Join(ids, ",")
		}
		if u.GetDisabled() {
			in = "no"
		}
		rows = append(rows, []string{strings.TrimPrefix(u.GetName(), "users/"), u.GetRole(), cameras, in, u.GetUpdateTime().AsTime().Local().Format(time.DateTime)})
	}
	return table(env.Stdout, rows...)
}

type userList struct{ client }

// Run lists the users.
func (c *userList) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	list, err := vedettev1.NewUserServiceClient(conn).ListUsers(ctx, &vedettev1.ListUsersRequest{})
	if err != nil {
		return plain(err)
	}
	return c.show(env, list.GetUsers()...)
}

type userUpdate struct {
	client
	User         string   `arg:"" help:"Whom."`
	Role         string   `enum:",viewer,operator,admin" default:"" help:"viewer, operator or admin."`
	Camera       []string `help:"Only these cameras."`
	AllCameras   bool     `help:"All cameras again."`
	PasswordFile string   `placeholder:"FILE" help:"File that holds the new password alone; - reads it from standard input."`
	Disable      bool     `xor:"enabled" help:"Let them in no more."`
	Enable       bool     `xor:"enabled" help:"Let them in again."`
}

// Run changes the user.
func (c *userUpdate) Run(ctx context.Context, env *Env, g *grammar) error {
	u, mask := &vedettev1.User{Name: "users/" + strings.TrimPrefix(c.User, "users/"), Role: c.Role, Cameras: fullNames(c.Camera), Disabled: c.Disable}, &fieldmaskpb.FieldMask{}
	for path, set := range map[string]bool{"role": c.Role != "", "cameras": len(c.Camera) > 0 || c.AllCameras, "disabled": c.Disable || c.Enable, "password": c.PasswordFile != ""} {
		if set {
			mask.Paths = append(mask.Paths, path)
		}
	}
	if len(mask.GetPaths()) == 0 {
		return errors.New("say what to change: --role, --camera, --all-cameras, --password-file, --disable or --enable")
	}
	if c.PasswordFile != "" {
		var err error
		if u.Password, err = readPassword(c.PasswordFile, env.Stdin); err != nil {
			return err
		}
	}
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	changed, err := vedettev1.NewUserServiceClient(conn).UpdateUser(ctx, &vedettev1.UpdateUserRequest{User: u, UpdateMask: mask})
	if err != nil {
		return plain(err)
	}
	return c.show(env, changed)
}

type userRemove struct {
	client
	User string `arg:"" help:"Whom."`
}

// Run removes the user.
func (c *userRemove) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := vedettev1.NewUserServiceClient(conn).DeleteUser(ctx, &vedettev1.DeleteUserRequest{Name: "users/" + strings.TrimPrefix(c.User, "users/")}); err != nil {
		return plain(err)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s is removed\n", strings.TrimPrefix(c.User, "users/"))
	return err
}
