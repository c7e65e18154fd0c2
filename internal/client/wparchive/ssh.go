package wparchive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// remote is a WordPress on a machine reached with the user's own ssh, settings, known hosts and keys. It runs sh, cat,
// tar and the database's dump program there, and PHP only if wp-config.php leaves no other way.
type remote struct {
	args    []string // ssh's arguments including the host
	name    string   // name for messages
	root    string   // folder of the WordPress there
	control string   // folder of the socket for shared connections; if empty, each command connects
	config  config
	files   int
	bytes   int64
}

// IsSSH reports whether the source is a WordPress on another machine.
func IsSSH(name string) bool { return strings.HasPrefix(name, "ssh://") }

// sshPart matches user and host names that ssh can't take for a flag.
var sshPart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,252}$`) })

// OpenSSH opens the WordPress at ssh://user@host:port/folder; /~/folder is below the user's home. ask says whether ssh
// may prompt. The caller must call Close.
func OpenSSH(ctx context.Context, address string, ask bool) (*Archive, error) {
	r, err := parseSSH(address)
	if err != nil {
		return nil, err
	}
	if !ask {
		r.args = append([]string{"-o", "BatchMode=yes"}, r.args...)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		return nil, errors.New("there is no ssh on this machine: install OpenSSH's client")
	}
	if runtime.GOOS != "windows" { // not supported by its ssh
		if r.control, err = os.MkdirTemp("", "slipway-ssh-"); err != nil {
			return nil, err
		}
		shared := []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", "ControlPath=" + filepath.Join(r.control, "s")}
		r.args = append(shared, r.args...)
	}
	a := &Archive{"WordPress at " + r.name, r}
	if err := r.look(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close closes the SSH connection, if there is one.
func (a *Archive) Close() {
	r, ok := a.src.(*remote)
	if !ok || r.control == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = exec.CommandContext(ctx, "ssh", append([]string{"-O", "exit"}, r.args...)...).Run()
	_ = os.RemoveAll(r.control)
}

func parseSSH(address string) (*remote, error) {
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address is not of the form ssh://user@host/folder")
	}
	r := &remote{args: []string{
		"-T", "-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no", "-o", "ConnectTimeout=30",
		"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4",
	}}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return nil, errors.New("the address holds a password: leave it out, ssh asks for it")
		}
		if !sshPart().MatchString(u.User.Username()) {
			return nil, errors.New("the address has no such user")
		}
		r.args, r.name = append(r.args, "-l", u.User.Username()), u.User.Username()+"@"
	}
	if port := u.Port(); port != "" {
		r.args = append(r.args, "-p", port)
	}
	if !sshPart().MatchString(u.Hostname()) && net.ParseIP(u.Hostname()) == nil {
		return nil, errors.New("the address names no host")
	}
	r.args = append(r.args, "--", u.Hostname())
	r.root = u.Path
	if home, ok := strings.CutPrefix(u.Path, "/~/"); ok {
		r.root = "./" + home
	}
	if r.root == "" || r.root == "/" || strings.ContainsAny(r.root, "\x00\n\r") {
		return nil, errors.New("the address names no folder: ssh://user@host/var/www/html, or ssh://user@host/~/public_html")
	}
	r.name += u.Hostname() + ":" + strings.TrimPrefix(r.root, "./")
	return r, nil
}

// run runs a script on the remote machine and passes its output to read. It returns the script's status.
func (r *remote) run(ctx context.Context, script string, read func(in io.Reader) error) (status int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", append(r.args[:len(r.args):len(r.args)], "exec sh -s")...)
	cmd.Stdin = strings.NewReader(script)
	said := &tail{}
	cmd.Stderr = said
	cmd.WaitDelay = 5 * time.Second // a shared connection keeps the pipes open
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run ssh: %w", err)
	}
	err = read(out)
	if err != nil {
		cancel()
	}
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.Is(err, errDamaged):
		return 0, err
	case ended == nil || errors.Is(ended, exec.ErrWaitDelay):
		return 0, err
	case errors.As(ended, &exit) && exit.ExitCode() == 1 && err == nil:
		return 1, nil
	case said.text() != "":
		return 0, fmt.Errorf("%s can't be read: %s", r.name, said.text())
	}
	return 0, errors.Join(fmt.Errorf("%s can't be read: ssh: %w", r.name, ended), err)
}

// tail keeps the last bytes written to it.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-1000):]
	return len(b), nil
}

// text returns them as one line that is safe for a terminal.
func (t *tail) text() string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(t.b), ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}), " ")
}

// word quotes a word for a POSIX shell.
func word(w string) string { return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'" }

// enter returns a command that changes to a folder of the remote WordPress.
func (r *remote) enter(dir string) string {
	return "cd " + word(r.root+dir) + " || exit 3\n"
}

// look reads the WordPress's settings and counts its files.
func (r *remote) look(ctx context.Context) error {
	var text bytes.Buffer
	_, err := r.run(ctx, r.enter("")+"test -d wp-content || { echo 'there is no wp-content in the folder' >&2; exit 3; }\n"+
		"find wp-content -type f | wc -l\ndu -sk wp-content\n"+
		"if test -f wp-config.php; then cat wp-config.php; else cat ../wp-config.php; fi\n", func(in io.Reader) error {
		_, err := text.ReadFrom(io.LimitReader(in, maxText+1))
		if err == nil && text.Len() > maxText {
			err = bad("its wp-config.php is larger than 1 MiB")
		}
		return err
	})
	if err != nil {
		return err
	}
	files, rest, _ := strings.Cut(text.String(), "\n")
	space, php, ok := strings.Cut(rest, "\n")
	r.files, err = strconv.Atoi(strings.TrimSpace(files))
	kib, err2 := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(space), "wp-content")), 10, 40)
	if !ok || err != nil || err2 != nil || r.files < 0 || kib < 0 {
		return bad("%s answers with what is no list of files", r.name)
	}
	r.bytes = kib << 10
	r.config = parseConfig(php)
	return nil
}

func (r *remote) plan(kind string) Plan {
	return Plan{Kind: kind, Home: r.config.home, Prefix: r.config.prefix, Files: r.files, Bytes: r.bytes, Left: []string{leftThere}}
}

// Folders of wp-content with regenerable files or plugins' backups.
var notTaken = []string{"cache", "upgrade", "updraft", "ai1wm-backups", "backups-dup-lite", "wflogs"}

var leftThere = "the folders " + strings.Join(notTaken, ", ") + " of wp-content"

// walk reads the dump, then the files.
func (r *remote) walk(ctx context.Context, take taker) (left []string, err error) {
	var taken error // error of the receiver, which makes ssh's error irrelevant
	script := r.enter("") + r.config.dump()
	status, err := r.run(ctx, script, func(in io.Reader) error {
		taken = take.take(item{in: in})
		return taken
	})
	if err == nil && status != 0 {
		err = fmt.Errorf("the database of %s can't be read", r.name)
	}
	if err != nil {
		return nil, err
	}
	script = r.enter("/wp-content") + "exec tar -cf -"
	for _, name := range notTaken {
		script += " --exclude=./" + name
	}
	links := 0
	status, err = r.run(ctx, script+" .\n", func(in io.Reader) error {
		t := tar.NewReader(&io.LimitedReader{R: in, N: maxBytes})
		for {
			h, err := t.Next()
			if errors.Is(err, io.EOF) {
				_, err = io.Copy(io.Discard, io.LimitReader(in, 1<<20)) // read the padding of the last block
				return err
			}
			if err != nil {
				return errDamaged
			}
			if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink {
				links++
			}
			if h.Typeflag != tar.TypeReg {
				continue
			}
			if err := take.take(item{path: strings.TrimPrefix(h.Name, "./"), size: h.Size, in: t}); err != nil {
				return err
			}
		}
	})
	left = []string{leftThere}
	if links > 0 {
		left = append(left, fmt.Sprintf("links between files (%d)", links))
	}
	if status == 1 {
		left = append(left, "what changed in files while they were read: import again once the old site rests")
	}
	return left, err
}

// config is the database configuration in a wp-config.php, which is parsed but never run.
type config struct {
	name, user, password, host string
	prefix, home               string
	whole                      bool // contains everything a dump needs as literals
}

// configValue matches constants and the table prefix; the value is in group two or three.
var configValue = sync.OnceValue(func() *regexp.Regexp {
	const text = `(?:'((?:[^'\\]|\\.){0,500})'|"((?:[^"\\$]|\\.){0,500})")`
	return regexp.MustCompile(`(?m)^[ \t]*define\s*\(\s*['"](DB_NAME|DB_USER|DB_PASSWORD|DB_HOST|WP_HOME)['"]\s*,\s*` + text + `\s*\)` +
		`|^[ \t]*\$(table_prefix)\s*=\s*` + text)
})

// parseConfig parses a wp-config.php. It ignores comments and values that aren't literals.
func parseConfig(php string) config {
	php = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(php, "")
	said := map[string]string{}
	for _, m := range configValue().FindAllStringSubmatch(php, -1) {
		name, single, double := m[1]+m[4], m[2]+m[5], m[3]+m[6]
		value := strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(single)
		if double != "" {
			value = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`).Replace(double)
		}
		if _, twice := said[name]; !twice { // PHP keeps the first definition too
			said[name] = value
		}
	}
	c := config{
		name: said["DB_NAME"], user: said["DB_USER"], password: said["DB_PASSWORD"], host: said["DB_HOST"],
		prefix: said["table_prefix"], home: said["WP_HOME"],
	}
	_, secret := said["DB_PASSWORD"]
	c.whole = c.name != "" && c.user != "" && c.host != "" && secret && !strings.ContainsAny(c.name+c.user+c.password+c.host, "\x00\r\n") &&
		!strings.HasPrefix(c.name, "-")
	return c
}

// dump returns a script that dumps the database. The password isn't in any program's arguments, which others could see.
func (c config) dump() string {
	if !c.whole {
		return "command -v wp >/dev/null || { echo 'wp-config.php takes the name or the password of the database from elsewhere, " +
			"and there is no wp-cli to ask' >&2; exit 4; }\nexec wp db export - --single-transaction --no-tablespaces </dev/null\n"
	}
	options := "[client]\n"
	option := func(name, value string) {
		if value != "" {
			options += name + `="` + strings.NewReplacer(`\`, `\\`).Replace(value) + "\"\n"
		}
	}
	option("user", c.user)
	option("password", c.password)
	host, port := c.host, ""
	if at := strings.Index(host, ":/"); at >= 0 {
		option("socket", host[at+1:])
		host = host[:at]
	} else if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	option("host", strings.Trim(host, "[]"))
	option("port", port)
	return "dump=$(command -v mariadb-dump || command -v mysqldump) || { echo 'there is no mariadb-dump and no mysqldump' >&2; exit 4; }\n" +
		`"$dump" --defaults-extra-file=/dev/fd/3 --single-transaction --quick --no-tablespaces --default-character-set=utf8mb4 ` +
		word(c.name) + " 3<<'SLIPWAY' || exit 5\n" + options + "SLIPWAY\n"
}
