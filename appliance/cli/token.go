package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

type tokenCommands struct {
	Create tokenCreate `cmd:"" help:"Make a token and print it, once."`
	List   tokenList   `cmd:"" help:"List who may use the API."`
	Revoke tokenRevoke `cmd:"" help:"End a token."`
}

type tokenCreate struct {
	client
	User   string        `arg:"" help:"Whom it is for."`
	Role   string        `enum:"viewer,operator,admin" default:"viewer" help:"viewer, operator or admin."`
	Camera []string      `help:"Only these cameras; all by default."`
	TTL    time.Duration `name:"ttl" help:"How long it is valid, such as 720h; until it is revoked by default."`
}

// Run makes a token.
func (c *tokenCreate) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req := &vedettev1.CreateTokenRequest{Token: &vedettev1.Token{User: c.User, Role: c.Role}}
	for _, id := range c.Camera {
		req.Token.Cameras = append(req.Token.Cameras, fullName(id))
	}
	if c.TTL != 0 {
		req.Ttl = durationpb.New(c.TTL)
	}
	made, err := vedettev1.NewTokenServiceClient(conn).CreateToken(ctx, req)
	if err != nil {
		return plain(err)
	}
	if c.Output == "json" {
		return printJSON(env.Stdout, made)
	}
	_, err = fmt.Fprintln(env.Stdout, made.GetSecret())
	return err
}

type tokenList struct{ client }

// Run lists the tokens.
func (c *tokenList) Run(ctx context.Context, env *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	list, err := vedettev1.NewTokenServiceClient(conn).ListTokens(ctx, &vedettev1.ListTokensRequest{})
	if err != nil {
		return plain(err)
	}
	rows := [][]string{{"TOKEN", "USER", "ROLE", "CAMERAS", "CREATED", "USED", "EXPIRES"}}
	messages := make([]proto.Message, 0, len(list.GetTokens()))
	for _, t := range list.GetTokens() {
		messages = append(messages, t)
		var ids []string
		for _, n := range t.GetCameras() {
			ids = append(ids, shortName(n))
		}
		cameras, used, expires := "all", "never", "never"
		if len(ids) > 0 {
			cameras = strings.Join(ids, ",")
		}
		if t.GetExpireTime() != nil {
			expires = t.GetExpireTime().AsTime().Local().Format(time.DateTime)
		}
		if t.GetUseTime() != nil {
			used = t.GetUseTime().AsTime().Local().Format(time.DateTime)
		}
		rows = append(rows, []string{shortToken(t.GetName()), t.GetUser(), t.GetRole(), cameras, t.GetCreateTime().AsTime().Local().Format(time.DateTime), used, expires})
	}
	if c.Output == "json" {
		return printJSON(env.Stdout, messages...)
	}
	return table(env.Stdout, rows...)
}

func shortToken(name string) string { return strings.TrimPrefix(name, "tokens/") }

type tokenRevoke struct {
	client
	Token string `arg:"" help:"Which, as list names it."`
}

// Run ends a token.
func (c *tokenRevoke) Run(ctx context.Context, _ *Env, g *grammar) error {
	ctx, conn, err := c.connect(ctx, g)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = vedettev1.NewTokenServiceClient(conn).RevokeToken(ctx, &vedettev1.RevokeTokenRequest{Name: "tokens/" + shortToken(c.Token)})
	return plain(err)
}
