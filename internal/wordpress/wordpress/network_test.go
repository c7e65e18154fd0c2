package wordpress

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slipway/internal/build/htaccess"
	"slipway/internal/platform/fault"
)

// Blogs go where the network goes: to a new address, to a clone and back to the site that it was made of, and to another host's.
func TestNetworkMoves(t *testing.T) {
	t.Parallel()
	folders := []Blog{{1, "old.example", "/"}, {2, "old.example", "/news/"}, {3, "shop.example", "/"}, {4, "shop.other", "/"}}
	hosts := []Blog{{1, "old.example", "/"}, {2, "news.old.example", "/"}, {3, "shop.example", "/"}}
	for name, tt := range map[string]struct {
		kind       string
		blogs, was []Blog
		itself     bool
		want       string
	}{
		"a new domain":            {Subfolder, folders, nil, true, "new.example/ new.example/news/ shop.example/ shop.other/"},
		"a clone":                 {Subfolder, folders, nil, false, "new.example/ new.example/news/ new.example/shop/ new.example/shop-4/"},
		"a new domain of hosts":   {Subdomain, hosts, nil, true, "new.example/ news.new.example/ shop.example/"},
		"a clone of hosts":        {Subdomain, hosts, nil, false, "new.example/ news.new.example/ shop.new.example/"},
		"a push to what it is of": {Subfolder, folders, []Blog{{1, "new.example", "/"}, {3, "shop.new", "/"}}, false, "new.example/ new.example/news/ shop.new/ new.example/shop/"},
		"no network":              {"", nil, nil, false, ""},
	} {
		to, list, err := move(tt.kind, tt.blogs, tt.was, "new.example", tt.itself)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range to {
			got = append(got, b.Domain+b.Path)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, " "), tt.want)
		}
		moves := slices.Contains(list, [2]string{"https://shop.example", "https://new.example/shop"})
		if moves != strings.Contains(tt.want, "new.example/shop/ ") {
			t.Errorf("%s: addresses change by %q", name, list)
		}
	}
	for name, bad := range map[string][]Blog{
		"a path":   {{1, "old.example", "/../"}},
		"a domain": {{1, `a"b`, "/"}},
		"too many": slices.Repeat([]Blog{{1, "old.example", "/"}}, maxBlogs+1),
	} {
		if _, _, err := move(Subfolder, bad, nil, "new.example", false); fault.As(err) == nil {
			t.Errorf("%s: %v, want a fault", name, err)
		}
	}
	many := []Blog{{1, "old.example", "/"}}
	for i := range maxMoved + 1 {
		many = append(many, Blog{int64(i + 2), fmt.Sprintf("b%d.example", i), "/"})
	}
	if _, _, err := move(Subfolder, many, nil, "new.example", true); err != nil {
		t.Errorf("domains that stay: %v", err)
	}
	if _, _, err := move(Subfolder, many, nil, "new.example", false); fault.As(err) == nil {
		t.Error("more domains than can be moved are taken")
	}
}

// files are those that there are below the document root.
type files []string

func (f files) Stat(name string) htaccess.Kind {
	switch name = strings.TrimPrefix(name, "/app/public/"); {
	case slices.Contains(f, strings.TrimSuffix(name, "/")):
		return htaccess.File
	case slices.ContainsFunc(f, func(x string) bool { return strings.HasPrefix(x, strings.TrimSuffix(name, "/")+"/") }):
		return htaccess.Dir
	}
	return htaccess.Nothing
}

// What lies at the top is found below each folder of a network, as by WordPress's rules for Apache.
func TestNetworkRules(t *testing.T) {
	t.Parallel()
	m, err := htaccess.Compile(NetworkRules())
	if err != nil {
		t.Fatal(err)
	}
	there := files{"index.php", "wp-login.php", "wp-admin/index.php", "wp-admin/network/index.php", "wp-content/uploads/sites/2/a.png"}
	for from, want := range map[string]string{
		"/wp-login.php":                          "/wp-login.php",
		"/news/wp-login.php":                     "/wp-login.php",
		"/news/wp-admin":                         "301 /news/wp-admin/",
		"/news/wp-admin/":                        "/wp-admin/",
		"/news/wp-admin/network/":                "/wp-admin/network/",
		"/news/wp-content/uploads/sites/2/a.png": "/wp-content/uploads/sites/2/a.png",
		"/news/hello-world/":                     "/news/hello-world/",
		"/wp-content/uploads/sites/2/a.png":      "/wp-content/uploads/sites/2/a.png",
		"/news/wp-json/wp/v2/posts":              "/news/wp-json/wp/v2/posts",
		"/news/deep/wp-login.php":                "/wp-login.php",
	} {
		a := m.Route(htaccess.Request{Method: "GET", Path: from, Asked: from, Host: "shop.example", HTTPS: true, Root: "/app/public", Files: there})
		got := a.Path
		if a.Status != 0 {
			got = strings.TrimPrefix(fmt.Sprint(a.Status, " ", a.Location), "x")
			got = strings.ReplaceAll(got, "https://shop.example", "")
		}
		if got != want {
			t.Errorf("%s leads to %s, want %s", from, got, want)
		}
	}
	if text, err := json.Marshal(NetworkRules()); err != nil || !strings.Contains(string(text), "wp-admin") {
		t.Errorf("%s %v", text, err)
	}
}
