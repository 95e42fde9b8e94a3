package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/vedette/vedette/appliance/api"
)

func TestFaultsOfTheGatewayHaveReasonsToo(t *testing.T) {
	b := start(t, false, album{})
	b.add("door")
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"a misspelt parameter", "GET", "/v1/tracks?fliter=x", "", http.StatusBadRequest, `there is no parameter`},
		{"a number that is none", "GET", "/v1/tracks?page_size=many", "", http.StatusBadRequest, `"INVALID_ARGUMENT"`},
		{"a body that is no JSON", "POST", "/v1/cameras?camera_id=a", "x", http.StatusBadRequest, `"INVALID_ARGUMENT"`},
		{"a field that does not exist", "POST", "/v1/cameras?camera_id=a", `{"uri":"x"}`, http.StatusBadRequest, `unknown field`},
		{"ten megabytes", "POST", "/v1/cameras?camera_id=a", strings.Repeat(" ", 10<<20), http.StatusRequestEntityTooLarge, `"REQUEST_TOO_LARGE"`},
		{"a method that does not go with it", "PUT", "/v1/cameras", "{}", http.StatusMethodNotAllowed, `"METHOD_NOT_ALLOWED"`},
		{"a path that does not exist", "GET", "/v1/camera", "", http.StatusNotFound, `"NO_SUCH_PATH"`},
		{"a filter that ends too early", "GET", "/v1/tracks?filter=camera%3D", "", http.StatusBadRequest, `cannot be read from character 8 on`},
		{"a snapshot of negative width", "GET", "/v1/cameras/door/snapshot.jpg?max_width=-1", "", http.StatusBadRequest, `max_width: -1 is negative`},
		{"a quality above all", "GET", "/v1/cameras/door/snapshot.jpg?quality=101", "", http.StatusBadRequest, `quality: 101`},
	} {
		resp, text := b.do(tc.method, tc.path, tc.body, "Authorization", "Bearer "+b.tokens[api.Admin])
		if resp.StatusCode != tc.status || !strings.Contains(text, tc.want) && !strings.Contains(text, strings.ReplaceAll(tc.want, `"`, `\"`)) {
			t.Errorf("%s: %s %s, want %d and %s", tc.name, resp.Status, text, tc.status, tc.want)
		}
		if !strings.Contains(text, "google.rpc.ErrorInfo") {
			t.Errorf("%s: no reason a client could branch on: %s", tc.name, text)
		}
	}
	for _, path := range []string{"/v1/tracks?pageSize=5&page_token=", "/v1/tracks?parent=cameras/-", "/v1/cameras/door/events?pageSize=20"} {
		if resp, text := b.do("GET", path, "", "Authorization", "Bearer "+b.tokens[api.Admin]); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
}

func TestTokensAreMadeListedAndRevokedOverHTTP(t *testing.T) {
	b := start(t, false, album{})
	admin := []string{"Authorization", "Bearer " + b.tokens[api.Admin]}
	resp, text := b.do("POST", "/v1/tokens", `{"token": {"user": "grafana", "role": "viewer"}, "ttl": "3600s"}`, admin...)
	var made struct {
		Token  struct{ Name string }
		Secret string
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Secret == "" || made.Token.Name == "" {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	used := func() bool {
		_, text := b.do("GET", "/v1/tokens", "", admin...)
		var list struct {
			Tokens []struct{ Name, UseTime string }
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || strings.Contains(text, made.Secret) {
			t.Fatalf("%v: %s", err, text)
		}
		for _, one := range list.Tokens {
			if one.Name == made.Token.Name {
				return one.UseTime != ""
			}
		}
		t.Fatalf("the token is not listed: %s", text)
		return false
	}
	if used() {
		t.Error("a new token was used already")
	}
	if resp, text := b.do("GET", "/v1/tokens", "", "Authorization", "Bearer "+made.Secret); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "ROLE_TOO_LOW") {
		t.Errorf("a viewer lists tokens: %s: %s", resp.Status, text)
	}
	if !used() {
		t.Error("the use of the token was not noted")
	}
	if resp, text := b.do("DELETE", "/v1/"+made.Token.Name, "", admin...); resp.StatusCode != http.StatusOK {
		t.Errorf("revoke: %s: %s", resp.Status, text)
	}
	if resp, _ := b.do("GET", "/v1/cameras", "", "Authorization", "Bearer "+made.Secret); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked token: %s", resp.Status)
	}
}
