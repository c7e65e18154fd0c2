package programs

import (
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// The first site that needs a PHP version that the machine lacks waits for its installation, and its log shows the
// progress. The next site finds it installed. It works with Composer, extensions, Node.js builds and commands.
func TestPHPFromRoot(t *testing.T) {
	world.Long(t)
	t.Parallel()
	site := func(version string) map[string]string {
		files := shop(version)
		files["composer.json"] = strings.Replace(files["composer.json"], "^8.1", "~8.4.0", 1)
		files["version.php"] = "<?php echo PHP_VERSION, ' of the command';"
		files["public/version.php"] = `<?php echo PHP_VERSION, " ", json_encode(array_map("extension_loaded", ["intl", "gd", "redis", "imagick", "pgsql"]));`
		files["package.json"] = `{"private": true, "scripts": {"build": "node -p process.version > public/node.txt"}}`
		return files
	}
	flags, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	h := installSite(t, "first", site("one"), flags...)
	t.Logf("the first site took %s", time.Since(begun))
	s := appSite{h}
	if log := s.log(h.last()); !strings.Contains(log, "Installing PHP 8.4 from Debian 13") ||
		!strings.Contains(log, "from Debian 13, with security updates until") {
		t.Errorf("the log says nothing of the installation:\n%s", log)
	}
	h.answers("GET", "/", "", 200, "one / 0 hello from a package")
	h.answers("GET", "/version.php", "", 200, "8.4.")
	h.answers("GET", "/version.php", "", 200, "[true,true,true,true,true]")
	h.answers("GET", "/node.txt", "", 200, "v")

	var made struct{ ID string }
	h.call("POST", "/sites/"+h.ID+"/commands", map[string]any{"command": "php version.php"}, &made)
	if o := s.operation(made.ID); !strings.HasPrefix(o.Result.Output, "8.4.") {
		t.Errorf("a command: %+v", o)
	}

	begun = time.Now()
	h.site("second", site("two"))
	t.Logf("the second site took %s", time.Since(begun))
	if log := s.log(h.last()); strings.Contains(log, "Installing PHP") {
		t.Errorf("PHP was installed again:\n%s", log)
	}
	h.answers("GET", "/version.php", "", 200, "8.4.")
}

// last returns the site's last deployment.
func (h *installation) last() string {
	h.t.Helper()
	var list struct{ Data []struct{ ID string } }
	h.call("GET", "/sites/"+h.ID+"/deployments", nil, &list)
	return list.Data[0].ID
}
