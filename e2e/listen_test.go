package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"slipway/e2e/world"
)

// `slipway webhooks listen` delivers events to a developer's machine without a public address. The printed and
// forwarded events are signed like other deliveries, and neither a kill of the service nor a lost connection loses an
// event.
func TestListen(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	key, err := w.User("ada@example.test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}

	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	library, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards got
	got := map[string]int{}
	local := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := library.Verify(
			body,
			r.Header,
		); err != nil || r.Header.Get("X-Service-Signature") != world.Signature(
			secret,
			body,
		) || r.URL.Path != "/hook" || r.Method != "POST" {
			t.Errorf("%s %s: the library says %v", r.Method, r.URL.Path, err)
		}
		var of struct {
			Event string
			Data  struct{ Site struct{ Name string } }
		}
		json.Unmarshal(body, &of)
		mu.Lock()
		got[of.Event+" "+of.Data.Site.Name]++
		mu.Unlock()
		rw.WriteHeader(http.StatusAccepted)
	}))
	defer local.Close()

	out, errs := &lockedBuffer{}, &lockedBuffer{}
	cmd := exec.Command(
		binary,
		"webhooks",
		"listen",
		"--events", "site.created,site.deleted", "--secret", secret, "--forward",
		strings.TrimPrefix(local.URL, "http://")+"/hook",
	)
	cmd.Env = append(os.Environ(), "SLIPWAY_TOKEN="+key, "SLIPWAY_SERVER=http://"+w.Listen)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	until := func(what string, ok func() bool) {
		t.Helper()
		if err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", what, err, out, errs)
		}
	}
	until("it never listened", func() bool { return strings.Contains(errs.String(), "Listening for site.created, site.deleted") })
	create := func(name string) {
		t.Helper()
		if err := w.Call(ctx, key, "POST", "/sites", map[string]string{"name": name, "type": "wordpress"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(name string) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return got["site.created "+name] > 0 }
	}
	create("first")
	until("the first event never came", heard("first"))
	until("nothing was printed", func() bool {
		return strings.Contains(
			out.String(),
			`"name":"first"`,
		) && strings.Contains(out.String(), "site.created  evt_") && strings.Contains(out.String(), "→ 202 in ")
	})
	// Events that occur while no listener is connected are delivered later.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for n := range 120 {
		create(fmt.Sprintf("waiting %d", n))
	}
	w.Kill()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	create("after the kill")
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until("an event after the kill never came", heard("after the kill"))
	for n := range 120 {
		until("an event before the kill was lost", heard(fmt.Sprintf("waiting %d", n)))
	}
	// On an interrupt it exits with status 0 and deletes its listener.
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v\n%s", err, errs)
	}
	if strings.Contains(out.String()+errs.String(), key) {
		t.Error("the key was printed")
	}
	for range 5 {
		if err := w.Call(ctx, key, "POST", "/webhook-listeners", map[string]string{"secret": "sixteen characters"}, nil); err != nil {
			t.Errorf("a listener after it: %v", err)
		}
	}

	// Each wrong call ends with its own error message.
	for _, x := range []struct {
		want string
		args []string
		key  string
	}{
		{"Too many listeners", nil, key},
		{"set SLIPWAY_TOKEN", nil, ""},
		{"Invalid API key", nil, "sk_nobody"},
		{"events must be among", []string{"--events", "site.exploded"}, key},
		{"must begin with https://", []string{"--base-url", "http://slipway.example.net"}, key},
		{"--forward must be", []string{"--forward", "ftp://localhost"}, key},
	} {
		cmd := exec.CommandContext(ctx, binary, append([]string{"webhooks", "listen", "--base-url", "http://" + w.Listen}, x.args...)...)
		cmd.Env = append(os.Environ(), "SLIPWAY_KEY="+x.key)
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), x.want) {
			t.Errorf("%v: %v\n%s, want %q", x.args, err, text, x.want)
		}
	}
}

// lockedBuffer is a buffer for concurrent reads and writes.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *lockedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }
