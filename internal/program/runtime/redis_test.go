package runtime

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/wait"
)

// redisProbe answers with what Redis returns for a command, and with the epochs.
const redisProbe = `<?php
if (isset($_GET["kill"])) { foreach (glob("/proc/[0-9]*/comm") as $f) { if (trim(@file_get_contents($f)) === "redis-server") { posix_kill((int) basename(dirname($f)), 9); } } echo "killed"; exit; }
[$ours, $own] = explode(":", getenv("SLIPWAY_REDIS_EPOCHS"));
if (isset($_GET["epoch"])) { echo file_get_contents($ours), " ", strlen(file_get_contents($own)), " ", @file_put_contents($ours, "x") === false ? "read-only" : "WRITABLE", " ", file_put_contents($own, "1"); exit; }
$s = @stream_socket_client("unix://" . getenv("SLIPWAY_REDIS"), $no, $why, 1);
if (!$s) { http_response_code(503); echo "no: $why"; exit; }
stream_set_timeout($s, 60);
if (isset($_GET["fill"])) { mt_srand(1); for ($i = $sent = 0; $sent < 100 << 20; $i++, $sent += $n) { $n = 1 << mt_rand(...($sent < 50 << 20 ? [4, 15] : [12, 18])); $t = "*3\r\n$3\r\nSET\r\n$" . strlen("k$i") . "\r\nk$i\r\n$$n\r\n" . str_repeat("x", $n) . "\r\n"; while ($t !== "") { $t = substr($t, fwrite($s, $t)); } if (($line = fgets($s)) !== "+OK\r\n") { echo $line; exit; } } echo "filled"; exit; }
if (isset($_GET["memory"])) { fwrite($s, "INFO server\r\n"); preg_match("/^process_id:(\d+)/m", fread($s, 65536), $m); preg_match("/^Pss_Anon: +(\d+)/m", file_get_contents("/proc/$m[1]/smaps_rollup"), $m); echo $m[1]; exit; }
fwrite($s, $_GET["do"] . "\r\n");
$line = fgets($s);
echo $line[0] === "$" && $line[1] !== "-" ? stream_get_contents($s, (int) substr($line, 1)) : $line;`

// Redis must run beside PHP-FPM in the same sandbox, start empty, have its memory limited by that of the program, and
// be restarted when it is killed. A program without Redis must answer too.
func TestRedisBesidePHP(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("cached", map[string]string{"index.php": redisProbe})
	s.Redis = true
	p := w.start(s)
	do := func(command string) (text string) {
		t.Helper()
		w.until("Redis answers", func() bool {
			status, answer := w.ask(p, s, "GET", "/?do="+strings.ReplaceAll(command, " ", "+"), "")
			text = answer
			return status == 200
		})
		return strings.TrimSpace(text)
	}
	if text := do("SET a b"); text != "+OK" {
		t.Errorf("SET: %q", text)
	}
	if text := do("CONFIG GET maxmemory"); text != "*2" {
		t.Errorf("CONFIG GET: %q", text)
	}
	if text := do("INFO memory"); !strings.Contains(
		text,
		"maxmemory:33554432\r",
	) || !strings.Contains(text, "maxmemory_policy:allkeys-lru") {
		t.Errorf("the bounds of Redis are others:\n%s", text)
	}
	if text := do("INFO persistence"); !strings.Contains(text, "aof_enabled:0") {
		t.Errorf("Redis writes:\n%s", text)
	}
	epoch := func() string {
		_, text := w.ask(p, s, "GET", "/?epoch=1", "")
		return text
	}
	before := epoch()
	if !strings.HasSuffix(before, " 16 read-only 1") {
		t.Errorf("the epochs: %q", before)
	}
	w.ClearRedis("site_other")
	if strings.Fields(epoch())[0] != strings.Fields(before)[0] {
		t.Error("another site's Redis was cleared too")
	}
	w.ClearRedis(s.Site)
	if strings.Fields(epoch())[0] == strings.Fields(before)[0] {
		t.Error("the epoch has not changed")
	}

	memory := func() int64 {
		t.Helper()
		_, text := w.ask(p, s, "GET", "/?memory=1", "")
		kib, err := strconv.ParseInt(text, 10, 64)
		ok(t, err)
		return kib << 10
	}
	if empty := memory(); empty == 0 || empty > redisOverhead(0) {
		t.Errorf("empty, Redis takes %d KiB", empty>>10)
	}
	// The probe writes three times as much as Redis may hold, first small values and then larger ones. The oldest
	// values must be dropped, and PHP must get that much less memory.
	if _, text := w.ask(p, s, "GET", "/?fill=1", ""); text != "filled" {
		t.Errorf("fill: %q", text)
	}
	if text := do("INFO stats"); strings.Contains(text, "evicted_keys:0\r") {
		t.Errorf("nothing was evicted:\n%s", text)
	}
	if full, most := memory(), redisMemory(s.Limits.Memory); full < most/2 || full > most+redisOverhead(most) {
		t.Errorf("full, Redis takes %d KiB for %d KiB of values", full>>10, most>>10)
	}

	_, text := w.ask(p, s, "GET", "/?kill=1", "")
	if text != "killed" {
		t.Fatalf("kill: %q", text)
	}
	w.hears("starts again in 1 s")
	if text := do("GET a"); text != "$-1" {
		t.Errorf("after its end Redis still has %q", text)
	}
	if strings.Contains(w.said(), "Warning") || strings.Contains(w.said(), "oO0OoO0OoO0Oo") {
		t.Errorf("Redis's own words are in the site's log:\n%s", w.said())
	}
}

// pongs serves connections to a Redis server that answers with who asks.
type pongs struct{ changes }

func (pongs) ServeRedis(ctx context.Context, s Spec, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "+PONG "+string(s.Site)+" "+s.Preview+"\r\n")
		c.Close()
	}
}

// A program must reach the operator's Redis server through a port of its loopback interface, under its own name. A
// program that may not use it must not reach it.
func TestRedisServerOfPrograms(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	w.Connect(pongs{})
	probe := `<?php $s = @stream_socket_client("tcp://127.0.0.1:36379", $no, $why, 60); echo $s ? fgets($s) : "none";`
	for _, reaches := range []bool{true, false} {
		s := w.phpSpec("server"+strconv.FormatBool(reaches), map[string]string{"index.php": probe})
		s.RedisServer, s.Preview = reaches, "p1"
		p := w.start(s)
		want := "none"
		if reaches {
			want = "+PONG " + string(s.Site) + " p1\r\n"
		}
		if _, text := w.ask(p, s, "GET", "/", ""); text != want {
			t.Errorf("%v: %q, want %q", reaches, text, want)
		}
		p.Stop(time.Minute)
		<-p.Done()
	}
}

// A command of the site may change the database, so what Redis held must not be found after it. The command itself must
// have no Redis.
func TestRedisClearedByCommands(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	changed := make(changes, 10)
	w.Connect(changed)
	s := w.phpSpec("cleared", map[string]string{"index.php": redisProbe})
	s.Redis = true
	p := w.start(s)
	_, before := w.ask(p, s, "GET", "/?epoch=1", "")
	command := s
	command.ID, command.Shell = "clearing", `echo "redis: $SLIPWAY_REDIS"; ls /etc/slipway-redis; [ -e /opt/slipway-redis ] && echo there`
	exit, err := Run(t.Context(), w, command)
	ok(t, err)
	if exit.Code == 0 {
		t.Errorf("the command has a Redis: %s", w.said())
	}
	w.hears("stdout redis: ")
	_, after := w.ask(p, s, "GET", "/?epoch=1", "")
	if before == after || len(strings.Fields(after)) == 0 {
		t.Errorf("epoch %q before the command, %q after", before, after)
	}
	select {
	case site := <-changed:
		if site != s.Site {
			t.Errorf("the command of %s has changed %s", s.Site, site)
		}
	default: // reported before the end is visible
		t.Error("the end of a command was not reported")
	}
	anew := s
	anew.ID = "cleared-anew"
	next := w.start(anew)
	for i, x := range []Program{p, next} { // once as a restart, once as falling asleep
		x.Stop(time.Minute)
		<-x.Done()
		select {
		case site := <-changed:
			if i == 1 || site != s.Site {
				t.Errorf("%s has changed when its last program fell asleep", site)
			}
		default:
			if i == 0 {
				t.Error("the replacement of a program was not reported")
			}
		}
	}
}

// While another program of the site may change the database, neither program may ask its Redis, and the values from
// before must not be found afterwards. The Redis of another site must stay in use.
func TestRedisPausedBesideOthers(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	spec := func(id string, site id.Site) Spec {
		s := w.phpSpec(id, map[string]string{"index.php": redisProbe})
		s.Redis, s.Site = true, site
		return s
	}
	epoch := func(p Program, s Spec) string {
		t.Helper()
		status, text := w.ask(p, s, "GET", "/?epoch=1", "")
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return strings.Fields(text)[0]
	}
	off := func(epoch string) bool { return strings.HasPrefix(epoch, "off") }
	s, beside, other := spec("first", "site_shared"), spec("second", "site_shared"), spec("third", "site_other")
	p, apart := w.start(s), w.start(other)
	before, alone := epoch(p, s), epoch(apart, other)
	if off(before) {
		t.Errorf("a program alone has the epoch %q", before)
	}
	second := w.start(beside)
	if a, b := epoch(p, s), epoch(second, beside); !off(a) || !off(b) {
		t.Errorf("two programs at once have the epochs %q and %q", a, b)
	}
	w.ClearRedis(s.Site)
	if now := epoch(p, s); !off(now) {
		t.Errorf("a purge meanwhile turns it on: %q", now)
	}
	second.Stop(time.Minute)
	<-second.Done()
	if now := epoch(p, s); off(now) || now == before {
		t.Errorf("the epoch afterwards is %q, before it was %q", now, before)
	}
	if now := epoch(apart, other); now != alone {
		t.Errorf("another site's epoch was %q and is %q", alone, now)
	}
}

// An epoch must change even if no file can be created, as on a full disk. If it cannot be changed, an error must say
// so.
func TestEpochOnFullDisk(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "epoch")
	if err := BumpEpoch(name+"-gone/epoch", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a program that is gone: %v", err)
	}
	seen := map[string]bool{}
	for i, off := range []bool{false, true, false, true} {
		if i == 2 {
			ok(t, os.Mkdir(name+".next", 0o700)) // where the next epoch would be written
		}
		ok(t, BumpEpoch(name, off))
		text, err := os.ReadFile(name)
		ok(t, err)
		if len(text) != 15 || strings.HasPrefix(string(text), "off") != off || seen[string(text)] {
			t.Errorf("%d: the epoch is %q after %v", i, text, seen)
		}
		seen[string(text)] = true
	}
	ok(t, os.Remove(name))
	if err := BumpEpoch(name, false); err == nil {
		t.Error("BumpEpoch returned no error although it could not change the epoch")
	}
}

// Where no Redis is installed, the program must run without it.
func TestRedisMissing(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	w.c.Redis = "/usr/bin/missing-redis"
	if _, why := RedisServer(w.c.Redis); why == "" {
		t.Error("a missing redis-server was accepted")
	}
	s := w.phpSpec("none", map[string]string{"index.php": `<?php echo getenv("SLIPWAY_REDIS") === false ? "none" : "some";`})
	s.Redis = true
	p := w.start(s)
	if status, text := w.ask(p, s, "GET", "/", ""); status != 200 || text != "none" {
		t.Errorf("%d %q", status, text)
	}
}

func (w *world) until(what string, look func() bool) {
	w.t.Helper()
	wait.Until(w.t, what, look, w.said)
}
