package runtime

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// iniDifferences lists the directives in which a site's PHP must differ from php.ini-production. A
// path or a size may have any value, "*".
var iniDifferences = map[string]string{
	"max_execution_time": "60", "max_input_vars": "5000", "post_max_size": "1024M", "upload_max_filesize": "1024M",
	"max_file_uploads": "50", "session.use_strict_mode": "1", "session.cookie_secure": "1", "session.cookie_httponly": "1",
	"session.cookie_samesite": "Lax", "html_errors": "0", "fastcgi.logging": "0", "variables_order": "EGPCS",
	"realpath_cache_ttl": "600", "opcache.max_accelerated_files": "20000", "date.timezone": "UTC", "session.gc_probability": "1",
	"memory_limit": "*", "upload_tmp_dir": "*", "sys_temp_dir": "*", "session.save_path": "*", "opcache.memory_consumption": "*",
	"mysqli.default_socket": DatabaseSocket, "pdo_mysql.default_socket": DatabaseSocket,
	// Changing these is deprecated from PHP 8.4 on, and its php.ini-production no longer has them.
	"session.sid_length": "32", "session.sid_bits_per_character": "4",
}

// commandDifferences lists the directives that PHP's command line program sets itself, whatever its configuration says.
var commandDifferences = map[string]string{
	"output_buffering": "0", "implicit_flush": "1", "register_argc_argv": "1", "max_execution_time": "0", "max_input_time": "-1",
	"html_errors": "0",
}

// same compares values as PHP does: Off, No, none and the empty value are equal.
func same(a, b string) bool {
	plain := func(v string) string {
		switch v = strings.ToLower(v); v {
		case "off", "no", "none", "false", "0":
			return ""
		case "on", "yes", "true":
			return "1"
		}
		return v
	}
	return plain(a) == plain(b)
}

// Each directive of PHP must have the value of php.ini-production, except for those listed above. This holds for
// visitors' requests, and for commands, workers, crons and WordPress, which are all started in the same way.
func TestPHPIsConfiguredForProduction(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	const all = `<?php echo json_encode(ini_get_all(null, false));`
	s := w.phpSpec("ini", map[string]string{"index.php": all, "all.php": all})
	s.Limits.Memory = 512 << 20
	_, text := w.ask(w.start(s), s, "GET", "/", "")
	web := directives(t, text)

	s.ID, s.Argv = "inicommand", []string{"php", "all.php"}
	s.Output = func(stream, line string) {
		if stream == "stdout" {
			text = line
		}
	}
	if exit, err := Run(t.Context(), w, s); err != nil || exit.Code != 0 {
		t.Fatalf("%+v %v", exit, err)
	}
	command := directives(t, text)
	if command["memory_limit"] != "512M" || web["memory_limit"] != "256M" {
		t.Errorf("a command may use %s, a request %s", command["memory_limit"], web["memory_limit"])
	}

	files, _ := filepath.Glob("/usr/lib/php/*/php.ini-production")
	if len(files) == 0 {
		t.Fatal("no php.ini-production below /usr/lib/php: install php-common")
	}
	slices.Sort(files)
	file := files[len(files)-1]
	said, err := exec.CommandContext(t.Context(), "php", "-n", "-r", `echo json_encode(parse_ini_file($argv[1]));`, file).Output()
	ok(t, err)
	production := directives(t, string(said))
	said, err = exec.CommandContext(t.Context(), "php", "-c", file, "-r", `echo json_encode(ini_get_all(null, false));`).Output()
	ok(t, err)
	for name, value := range directives(t, string(said)) { // the directives that the file does not set have their built-in values
		if _, ok := production[name]; !ok && commandDifferences[name] == "" && !strings.HasPrefix(name, "cli") {
			production[name] = value
		}
	}
	if len(production) < 150 {
		t.Fatalf("%d directives", len(production))
	}
	for _, name := range slices.Sorted(maps.Keys(production)) {
		want, differs := iniDifferences[name]
		if !differs {
			want = production[name]
		}
		if got, has := web[name]; has && want != "*" && !same(got, want) {
			t.Errorf("for visitors %s is %q, want %q", name, got, want)
		}
		if fixed := commandDifferences[name]; fixed != "" {
			want = fixed
		}
		if got, has := command[name]; has && want != "*" && !same(got, want) {
			t.Errorf("for commands %s is %q, want %q", name, got, want)
		}
	}
}

func directives(t *testing.T, text string) map[string]string {
	t.Helper()
	var raw map[string]any
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	out := map[string]string{}
	for name, v := range raw {
		out[name], _ = v.(string)
	}
	return out
}

// The query string must not become a list of arguments, headers may follow a line of HTML, and an XML template must not
// be taken for a script. What a visitor types must not appear in the log of an error.
func TestPHPProduction(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("production", map[string]string{
		"index.php": `<html>` + "\n" + `<?php header("X-Late: 1"); session_start(); setcookie("a", "b");
			echo json_encode([isset($_SERVER["argv"]), isset($_SERVER["argc"]), headers_sent(), $_REQUEST["c"] ?? "none"]);`,
		"xml.php":   `<?xml version="1.0"?><feed><?php echo 1; ?></feed>`,
		"login.php": `<?php function login($user, $password) { throw new Exception("no such user"); } login("u", $_GET["p"]);`,
	})
	p := w.start(s)
	if _, text := w.ask(p, s, "GET", "/?--env=dev", ""); text != "<html>\n"+`[false,false,false,"none"]` {
		t.Errorf("%q\n%s", text, w.said())
	}
	if status, text := w.ask(p, s, "GET", "/xml.php", ""); status != 200 || !strings.Contains(text, "<feed>1</feed>") {
		t.Errorf("%d %q\n%s", status, text, w.said())
	}
	if status, _ := w.ask(p, s, "GET", "/login.php?p=hunter2", ""); status != 500 {
		t.Errorf("an uncaught exception is answered with %d", status)
	}
	w.hears("no such user")
	if said := w.said(); strings.Contains(said, "hunter2") || strings.Contains(said, "Warning") {
		t.Errorf("the log says\n%s", said)
	}
}

// A command's errors must be in the log but not in its output.
func TestPHPCommandErrors(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("commanderrors", map[string]string{"task.php": `<?php echo $nothing, "printed\n"; undefined();`})
	s.Argv = []string{"php", "task.php"}
	exit, err := Run(t.Context(), w, s)
	if said := w.said(); err != nil || exit.Code != 255 || !strings.Contains(said, "stdout printed") ||
		strings.Contains(said, "stdout PHP") || strings.Contains(said, "stdout Warning") || !strings.Contains(said, "stderr PHP Fatal error") {
		t.Errorf("%+v %v\n%s", exit, err, said)
	}
}

// A script in storage that is written again within the same second must run in its latest version.
func TestPHPScriptsWrittenTwice(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("twice", map[string]string{
		"index.php": `<?php file_put_contents("data/x.php", '<?php return "' . $_GET["v"] . '";'); touch("data/x.php", time()); echo "wrote";`,
		"read.php":  `<?php echo include "data/x.php";`,
	})
	s.Storage = []Storage{{Path: "data"}}
	p := w.start(s)
	for _, v := range []string{"one", "two", "three"} {
		w.ask(p, s, "GET", "/?v="+v, "")
		if _, text := w.ask(p, s, "GET", "/read.php", ""); text != v {
			t.Errorf("%q, want %q", text, v)
		}
	}
}
