package wordpress

import (
	"archive/zip"
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

// writes is a plugin with which a visitor inserts a row and reads all rows. Some inserts take two seconds, like an
// order with a payment.
const writes = `<?php
global $wpdb;
if (isset($_GET['write']) && $_SERVER['REQUEST_METHOD'] === 'POST') {
	usleep((int) $_GET['sleep'] * 1000);
	$done = $wpdb->query($wpdb->prepare("INSERT INTO {$wpdb->options} (option_name, option_value, autoload) VALUES (%s, 'x', 'no')", 'written_' . $_GET['write']));
	usleep((int) $_GET['sleep'] * 1000);
	http_response_code($done ? 200 : 500);
	die($done ? 'written' : $wpdb->last_error);
}
if (isset($_GET['written'])) {
	header('Cache-Control: no-store');
	die('all ' . implode(' ', $wpdb->get_col("SELECT option_name FROM {$wpdb->options} WHERE option_name LIKE 'written\\_%'")) . ' all');
}
if (isset($_GET['grow'])) {
	$wpdb->query("CREATE TABLE IF NOT EXISTS {$wpdb->prefix}ballast (id INT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT)");
	for ($i = 0; $i < 16; $i++) $wpdb->query("INSERT INTO {$wpdb->prefix}ballast (body) VALUES ('" . str_repeat(bin2hex(random_bytes(1024)), 1024) . "')");
	die('grown');
}
`

// writer sends a visitor's write every 50 ms and records the responses.
type writer struct {
	mu       sync.Mutex // guards the following fields
	written  map[string]bool
	failures map[string]int
	done     func()
}

// writeEvery starts a write every 50 ms until done is called, which waits for the responses.
func (h *installation) writeEvery(s siteBody) *writer {
	w := &writer{written: map[string]bool{}, failures: map[string]int{}}
	ctx, stop := context.WithCancel(h.t.Context())
	v := h.visitor(s.URL)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		slow, under := make(chan struct{}, 2), make(chan struct{}, 8) // a busy machine can't handle a write every 50 ms
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case under <- struct{}{}:
			default:
				continue
			}
			sleep := 0
			select {
			case slow <- struct{}{}:
				sleep = 1000
			default:
			}
			token := fmt.Sprintf("%s_%06d", s.ID[len(s.ID)-4:], n)
			all.Go(func() {
				defer func() { <-under }()
				if sleep > 0 {
					defer func() { <-slow }()
				}
				address := fmt.Sprintf("%s/?write=%s&sleep=%d", s.URL, token, sleep)
				r, err := http.NewRequestWithContext(h.t.Context(), "POST", address, strings.NewReader("order=1"))
				if err != nil {
					panic(err)
				}
				a, err := world.Read(v.http.Do(r))
				w.mu.Lock()
				defer w.mu.Unlock()
				switch {
				case err != nil:
					w.failures[err.Error()]++
				case a.Status != 200 || string(a.Body) != "written":
					w.failures[fmt.Sprintf("%d %s", a.Status, titleForm.FindString(string(a.Body)))]++
				default:
					w.written["written_"+token] = true
				}
			})
		}
	})
	w.done = func() { stop(); all.Wait() }
	return w
}

// inBackup returns the rows in a backup's database.
func (h *installation) inBackup(id string) map[string]bool {
	t := h.t
	t.Helper()
	name := filepath.Join(t.TempDir(), "backup.zip")
	h.until("the download of "+id, func() bool {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+h.Listen+"/api/v1/backups/"+id+"/download?format=zip", nil)
		ok(t, err)
		r.Header.Set("Authorization", "Bearer "+h.key)
		resp, err := http.DefaultClient.Do(r)
		ok(t, err)
		defer resp.Body.Close()
		f, err := os.Create(name)
		ok(t, err)
		defer f.Close()
		_, err = io.Copy(f, resp.Body)
		ok(t, err)
		return resp.StatusCode == 200
	})
	defer os.Remove(name)
	z, err := zip.OpenReader(name)
	ok(t, err)
	defer z.Close()
	found, read := map[string]bool{}, false
	for _, f := range z.File {
		if !strings.HasPrefix(f.Name, "database/") {
			continue
		}
		in, err := f.Open()
		ok(t, err)
		lines := bufio.NewReaderSize(in, 1<<20)
		for err == nil {
			var line string
			line, err = lines.ReadString('\n')
			for _, x := range writtenForm.FindAllString(line, -1) {
				found[x] = true
			}
		}
		read = true
		in.Close()
	}
	if !read {
		t.Fatalf("the backup %s has no database", id)
	}
	return found
}

var titleForm = regexp.MustCompile(`<title>[^<]*`)

var writtenForm = regexp.MustCompile(`written_[A-Za-z0-9]+_[0-9]+`)

// lost returns the acknowledged rows that are neither in the current database nor in a backup that the operation names.
func (h *installation) lost(w *writer, s siteBody, op workBody) (lost []string) {
	w.mu.Lock()
	told := maps.Clone(w.written)
	w.mu.Unlock()
	have := map[string]bool{}
	for _, key := range []string{"backupId", "replacedBackupId"} {
		if id, _ := op.Result[key].(string); id != "" {
			maps.Copy(have, h.inBackup(id))
		}
	}
	_, _, text := h.visitor(s.URL).get("/?written=" + op.ID)
	if !strings.HasPrefix(text, "all ") || !strings.HasSuffix(text, " all") {
		h.t.Fatalf("the site doesn't say what is written: %.300s", text)
	}
	now := map[string]bool{}
	for _, x := range writtenForm.FindAllString(text, -1) {
		now[x] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range told {
		switch {
		case !now[x] && !have[x]:
			lost = append(lost, x)
			delete(w.written, x)
		case !now[x]: // only this backup contains it, later ones don't
			delete(w.written, x)
		}
	}
	return lost
}

func number(t *testing.T, name string, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	ok(t, err)
	return n
}

// With a write every 50 ms, pushes and failed updates lose no acknowledged row: it is in the database or in the backup
// that the operation names. All writes are answered. SLIPWAY_ROUNDS=100 runs a hundred rounds, SLIPWAY_BALLAST_MIB=1024
// uses a database of 1 GiB.
func TestWritersLoseNothing(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	shop := h.ready(h.create("Shop").ID)
	h.call("PATCH", "/sites/"+shop.ID, map[string]any{"run": map[string]any{"memoryMiB": 1024}}, nil)
	h.restart(shop)
	h.plant(shop, "mu-plugins/writes.php", writes)
	h.plant(shop, "plugins/gadget/gadget.php", gadget("1.0", ""))
	h.plant(shop, "mu-plugins/offers.php", offers)
	owner, _ := h.login(shop)
	owner.rest("PUT", "/plugins/gadget/gadget", "application/json", strings.NewReader(`{"status": "active"}`), &struct{}{})
	for range number(t, "SLIPWAY_BALLAST_MIB", 0) / 32 {
		if status, _, text := owner.get("/?grow=1"); status != 200 || text != "grown" {
			t.Fatalf("the database does not grow: %d %.300s", status, text)
		}
	}
	var op workBody
	h.call("POST", "/sites/"+shop.ID+"/clone", map[string]any{"name": "Staging"}, &op)
	op = h.ended(op.ID, "success")
	staging := h.ready(op.Result["siteId"].(string))
	w := h.writeEvery(shop)
	rounds, lost := number(t, "SLIPWAY_ROUNDS", 3), 0
	for i := range rounds {
		if t.Failed() {
			break
		}
		begun := time.Now()
		what := "push"
		if i%4 != 3 {
			h.call("POST", "/sites/"+staging.ID+"/push", map[string]any{"to": shop.ID, "database": true}, &op)
			op = h.ended(op.ID, "success")
		} else {
			what = "update"
			h.offerPlugin(shop, fmt.Sprintf("2.%d", i), "add_action('template_redirect', function () { gadget_is_missing(); });")
			op = h.ended(h.update(shop, map[string]any{"plugins": []string{"gadget"}}), "failed")
		}
		took := time.Since(begun)
		if op.Result["backupBehind"] != nil {
			t.Errorf("round %d: the backup is behind: %v", i, op.Result)
		}
		list := h.lost(w, shop, op)
		lost += len(list)
		if len(w.failures) > 0 {
			t.Logf("%q", h.lines(shop))
		}
		w.mu.Lock()
		t.Logf("round %d, %s in %s: %d lost %.200q, failures %v", i, what, took.Round(time.Millisecond), len(list), list, w.failures)
		w.mu.Unlock()
	}
	w.done()
	if lost += len(h.lost(w, shop, workBody{})); lost > 0 || len(w.failures) > 0 {
		t.Errorf("in %d rounds %d acknowledged writes were lost; failures: %v", rounds, lost, w.failures)
	}
}
