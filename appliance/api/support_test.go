package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/vedette/vedette/appliance/api"
)

func TestTheChecklistAndTheSupportBundleAreForAdmins(t *testing.T) {
	b := start(t, true, album{})
	get := func(path string, role api.Role) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.http+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if role != "" {
			req.Header.Set("Authorization", "Bearer "+b.tokens[role])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(body)
	}
	for _, path := range []string{"/v1/system/findings", "/v1/system/support-bundle", "/v1/system/support-bundle.tar.gz"} {
		for _, role := range []api.Role{"", api.Viewer, api.Operator} {
			if code, _, body := get(path, role); code != http.StatusForbidden || !strings.Contains(body, "ROLE_TOO_LOW") {
				t.Errorf("%s for %q answers %d: %s", path, role, code, body)
			}
		}
	}
	if _, _, body := get("/v1/system/findings", api.Admin); !strings.Contains(body, `"check":"disk"`) || !strings.Contains(body, "SEVERITY_WARNING") || !strings.Contains(body, "make room") {
		t.Errorf("the findings are %s", body)
	}
	code, header, body := get("/v1/system/support-bundle.tar.gz", api.Admin)
	if code != http.StatusOK || header.Get("Content-Type") != "application/gzip" || !strings.Contains(header.Get("Content-Disposition"), "vedette-support.tar.gz") || body != strings.Repeat("bundle ", 1<<17) {
		t.Errorf("the bundle answers %d, %v, %d bytes", code, header, len(body))
	}
}
