package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// A link into a WordPress site must exist while Terraform runs. If the server gives none, the error must show its
// reason. Requests must identify themselves as the provider's.
func TestWordPressLogin(t *testing.T) {
	t.Parallel()
	const link = "https://journal.example/wp-login.php?slipway-login=x"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if agent := r.UserAgent(); agent != "terraform-provider-slipway" {
			t.Errorf("the User-Agent is %q", agent)
		}
		switch r.Method + " " + r.URL.Path {
		case "POST /api/v1/sites/site_1/wordpress/login":
			fmt.Fprintf(w, `{"url": %q}`, link)
		default:
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"error": "Not a WordPress site"}`)
		}
	}))
	t.Cleanup(server.Close)
	c := open(t, server.URL, "slw_x")
	schema := c.schema.EphemeralResourceSchemas["slipway_wordpress_login"]
	login := func(site string) (*tfprotov6.OpenEphemeralResourceResponse, string) {
		t.Helper()
		resp, err := c.server.OpenEphemeralResource(t.Context(), &tfprotov6.OpenEphemeralResourceRequest{
			TypeName: "slipway_wordpress_login", Config: c.encode(schema, attrs{"site_id": site}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp, c.failure(resp.Diagnostics, nil)
	}
	resp, why := login("site_1")
	if why != "" {
		t.Fatal(why)
	}
	v, err := resp.Result.Unmarshal(schema.ValueType())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]tftypes.Value
	var url string
	if err := v.As(&got); err != nil {
		t.Fatal(err)
	}
	if err := got["url"].As(&url); err != nil || url != link {
		t.Errorf("the link is %q, %v", url, err)
	}
	if _, why := login("site_2"); !strings.Contains(why, "Not a WordPress site") {
		t.Errorf("of another site: %q", why)
	}
}
