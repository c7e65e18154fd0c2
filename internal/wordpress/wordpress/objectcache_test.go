package wordpress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"
	"slipway/internal/platform/wait"
	"slipway/internal/program/redis"
)

// objects runs the object cache as a site runs it: PHP sends commands, and a Redis answers.
type objects struct {
	t                   *testing.T
	dir, socket, epochs string
	env                 []string
}

func newObjects(t *testing.T) *objects {
	t.Helper()
	dir, err := os.MkdirTemp("", "oc-") // short: a unix socket's path must not be longer than 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &objects{t: t, dir: dir, socket: filepath.Join(dir, "redis.sock")}
	o.epochs = filepath.Join(dir, "ours") + ":" + filepath.Join(dir, "epoch")
	for name, text := range map[string]string{"ours": "first", "epoch": "0000000000000000"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.env = append(os.Environ(), "SLIPWAY_REDIS="+o.socket, "SLIPWAY_REDIS_EPOCHS="+o.epochs, "CONTENT="+dir)
	return o
}

// redis runs a real Redis until the test ends or stop is called.
func (o *objects) redis(more ...string) (stop func()) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args := []string{"--port", "0", "--unixsocket", o.socket, "--save", "", "--dir", o.dir, "--logfile", filepath.Join(o.dir, "log")}
	cmd := exec.CommandContext(ctx, "redis-server", append(args, more...)...)
	if err := cmd.Start(); err != nil {
		o.t.Fatalf("Redis is needed: apt-get install redis-server: %v", err)
	}
	stop = func() { cancel(); _ = cmd.Wait() }
	o.t.Cleanup(stop)
	wait.Until(o.t, "Redis answers", func() bool {
		c, err := net.Dial("unix", o.socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return stop
}

// shared makes the operator's Redis server answer through the relay of a site until the test ends or stop is called.
func (o *objects) shared(of id.Site) (stop func()) {
	o.t.Helper()
	own := newObjects(o.t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := strings.Cut(address, ":")
	own.redis("--port", port, "--requirepass", "secret")
	server, err := redis.Open(o.t.Context(), "redis://:secret@"+address, noNotes{}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if l, err = net.Listen("unix", o.socket); err != nil {
		o.t.Fatal(err)
	}
	client := redis.Client{Site: of}
	o.env = append(o.env, "SLIPWAY_REDIS_PREFIX="+client.Prefix())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(ctx, client, l) }()
	stop = func() { cancel(); <-served }
	o.t.Cleanup(stop)
	return stop
}

type noNotes struct{}

func (noNotes) Note(id.Site, string) {}

func (o *objects) php(args ...string) string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "php", append([]string{"testdata/objectcache.php"}, args...)...)
	cmd.Env = o.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Errorf("php %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// The object cache must answer every call as WordPress's own does, even if the request has no value left in memory and
// all values come from Redis. This holds for one blog and for several.
func TestObjectCacheIsWordPress(t *testing.T) {
	t.Parallel()
	for _, multisite := range []string{"", "1"} {
		t.Run("multisite "+multisite, func(t *testing.T) {
			t.Parallel()
			o := newObjects(t)
			o.redis()
			o.env = append(o.env, "MULTISITE="+multisite)
			for seed := range 2 {
				if said := o.php("same", strconv.Itoa(seed)); said != "same" {
					t.Errorf("with seed %d: %.2000s", seed, said)
				}
			}
		})
	}
}

// The object cache must also work on the operator's Redis server, where each site has its own values.
func TestObjectCacheOnServer(t *testing.T) {
	t.Parallel()
	o := newObjects(t)
	stop := o.shared("site_a")
	for seed := range 2 {
		if said := o.php("same", strconv.Itoa(seed)); said != "same" {
			t.Errorf("with seed %d: %.2000s", seed, said)
		}
	}
	is := func(what, want string, args ...string) {
		t.Helper()
		if got := o.php(args...); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for _, flush := range []string{"flush", "flush_group"} {
		is("set", "true", "set", "options", "title", "one")
		is("the next request", `"one"`, "get", "options", "title")
		is(flush, "true", flush, "options")
		is("after "+flush, "false", "get", "options", "title")
	}
	is("set", "true", "set", "options", "title", "one")
	is("its figures", `{"hits":0,"misses":0,"bytes":0,"keys":0}`, "figures")
	is("late", "true true truefalse", "late", filepath.Join(o.dir, "ours"))
	is("what was read before a change", "false", "get", "options", "title")
	is("set", "true", "set", "options", "title", "two")
	for _, prefix := range []string{"site_b:", ""} { // the prefix that a client sends has no effect: the relay decides which site it is
		env := o.env
		o.env = append(slices.Clip(env), "SLIPWAY_REDIS_PREFIX="+prefix)
		is("as "+prefix, "false", "get", "options", "title")
		o.env = env
	}
	stop()
	is("without the server", "none", "set", "options", "title", "three")
}

// The next request must find the values. No request may find them after the epoch has changed, because then another
// program has changed the database.
func TestObjectCacheEpochs(t *testing.T) {
	t.Parallel()
	o := newObjects(t)
	stop := o.redis()
	is := func(what, want string, args ...string) {
		t.Helper()
		if got := o.php(args...); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("set", "true", "set", "options", "title", "one")
	is("the next request", `"one"`, "get", "options", "title")
	is("another group", "false", "get", "posts", "title")
	if err := os.WriteFile(filepath.Join(o.dir, "ours"), []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	is("after another epoch", "false", "get", "options", "title")

	// Here a request begins, other requests read a value, and then the first request changes that value.
	is("late", "true true truefalse", "late", filepath.Join(o.dir, "ours"))
	is("what was read before a change", "false", "get", "options", "title")
	is("what was read before a deletion", "false", "get", "options", "name")

	// While another program changes the database, Redis must not be asked. If a request began meanwhile and changes a
	// value, later requests must find the change, even if others have read the old value since.
	is("set", "true", "set", "options", "title", "before")
	for _, epoch := range []string{"offabc", "third"} {
		if err := os.WriteFile(filepath.Join(o.dir, "ours"), []byte(epoch), 0o600); err != nil {
			t.Fatal(err)
		}
		is("epoch "+epoch, map[string]string{"offabc": "none", "third": "false"}[epoch], "get", "options", "title")
	}
	is("a request while it is paused", "true falsenone", "paused", filepath.Join(o.dir, "ours"))
	is("what was read before its change", "false", "get", "options", "title")

	// When a request changes a value while Redis is down, no later request may find the old value.
	is("set", "true", "set", "options", "title", "two")
	stop()
	is("without Redis", "none", "set", "options", "title", "three")
	epoch, err := os.ReadFile(filepath.Join(o.dir, "epoch"))
	if err != nil || string(epoch) == "0000000000000000" || len(epoch) != 16 {
		t.Errorf("the epoch after a request without Redis: %q, %v", epoch, err)
	}
	o.redis()
	is("with a new one", "false", "get", "options", "title")

	// A drop-in of the site's own takes precedence over ours, and the log must say so once.
	if err := os.WriteFile(filepath.Join(o.dir, "object-cache.php"), []byte("<?php"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := o.php(
		"get",
		"options",
		"title",
	); !strings.Contains(said, "object-cache.php of its own") || !strings.HasSuffix(said, "none") {
		t.Errorf("a drop-in of its own: %q", said)
	}
	is("the second request", "none", "get", "options", "title")
}

// Whatever answers in Redis's place, the request must stay within its memory limit and must not wait long, and values
// that Redis held before must not be found any more.
func TestObjectCacheOfAnEnemy(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(c net.Conn){
		"nothing":         func(net.Conn) {},
		"the end":         func(c net.Conn) { c.Close() },
		"a long line":     func(c net.Conn) { repeat(c, "+aaaaaaaaaaaaaaaa") },
		"a long value":    func(c net.Conn) { _, _ = io.WriteString(c, "$2000000000\r\n"); repeat(c, "aaaaaaaaaaaaaaaa") },
		"many values":     func(c net.Conn) { _, _ = io.WriteString(c, "*1000000000\r\n"); repeat(c, "$1\r\na\r\n") },
		"deep lists":      func(c net.Conn) { repeat(c, "*1\r\n") },
		"a negative list": func(c net.Conn) { _, _ = io.WriteString(c, "*-9223372036854775808\r\n") },
		"many large": func(c net.Conn) {
			_, _ = io.WriteString(c, "*300\r\n")
			repeat(c, "$1000000\r\n"+strings.Repeat("a", 1000000)+"\r\n")
		},
		"drops":    func(c net.Conn) { trickle(c) },
		"refusals": func(c net.Conn) { repeat(c, "-OOM no\r\n") },
		"objects":  func(c net.Conn) { repeat(c, "$36\r\nO:9:\"Exception\":1:{s:1:\"x\";i:1000000;}\r\n") },
		"no Redis": func(c net.Conn) { repeat(c, "HTTP/1.1 400 Bad Request\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newObjects(t)
			l, err := net.Listen("unix", o.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					t.Cleanup(func() { c.Close() })
					go func() {
						in := bufio.NewReader(c)
						var lines [5]string // ECHO and its argument
						for i := range lines {
							lines[i], _ = in.ReadString('\n')
						}
						fmt.Fprintf(c, "%s%s", lines[3], lines[4])
						if name == "drops" || name == "nothing" {
							answer(c) // and reads nothing after that
							return
						}
						go func() { _, _ = io.Copy(io.Discard, in) }()
						answer(c)
					}()
				}
			}()
			if said := o.php("hostile"); said != "fine" {
				t.Errorf("%.1000s", said)
			}
			if epoch, err := os.ReadFile(filepath.Join(o.dir, "epoch")); err != nil || string(epoch) == "0000000000000000" {
				t.Errorf("the epoch is still %q, %v", epoch, err)
			}
		})
	}
}

func repeat(c net.Conn, text string) {
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// trickle sends a value byte by byte, so that no single read reaches its timeout.
func trickle(c net.Conn) {
	_, _ = io.WriteString(c, "$1000000\r\n")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(c, "a"); err != nil {
			return
		}
	}
}
