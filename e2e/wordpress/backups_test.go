package wordpress

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"

	"slipway/e2e/world"
)

type backupBody struct {
	ID, Status, Type  string
	Error, VerifiedAt *string
	SizeBytes         int64
}

// backUp creates a backup of a site and waits until it is verified.
func (h *installation) backUp(site string) (b backupBody) {
	h.t.Helper()
	h.call("POST", "/sites/"+site+"/backups", nil, &b)
	h.until("the backup is verified", func() bool {
		h.call("GET", "/backups/"+b.ID, nil, &b)
		return b.VerifiedAt != nil || b.Error != nil
	})
	if b.Error != nil {
		h.t.Fatalf("the backup: %s", *b.Error)
	}
	return b
}

type operationBody struct {
	ID, Status string
	Error      *string
	Result     struct{ BackupID, SiteID string }
}

// done waits until an operation has succeeded.
func (h *installation) done(o operationBody) operationBody {
	h.t.Helper()
	h.until("the operation has ended", func() bool {
		h.call("GET", "/operations/"+o.ID, nil, &o)
		return o.Status == "success" || o.Status == "failed"
	})
	if o.Status != "success" {
		h.t.Fatalf("the operation failed: %s", *o.Error)
	}
	return o
}

func (h *installation) restore(backup string, body any) operationBody {
	h.t.Helper()
	var o operationBody
	h.call("POST", "/backups/"+backup+"/restore", body, &o)
	return h.done(o)
}

// shows waits until a page contains a text, or, without want, until it doesn't.
func (h *installation) shows(url, text string, want bool) {
	h.t.Helper()
	v := h.visitor(url)
	h.until(fmt.Sprintf("%s shows %q: %v", url, text, want), func() bool {
		status, _, page := v.get("/?fresh=1")
		return status == 200 && strings.Contains(page, text) == want
	})
}

func (v *visitor) publish(title, content string) {
	v.h.t.Helper()
	text, err := json.Marshal(map[string]any{"title": title, "content": content, "status": "publish"})
	ok(v.h.t, err)
	v.rest("POST", "/posts", "application/json", bytes.NewReader(text), &struct{}{})
}

// interrupted kills the service during restores and backups, which must complete after the restart. It also kills
// MariaDB during a backup, which must complete or fail with an error.
func (h *installation) interrupted(s siteBody, backup string) {
	h.t.Helper()
	for _, message := range []string{"", "Backing up what is there now", "Restoring files"} {
		var o operationBody
		h.call("POST", "/backups/"+backup+"/restore", nil, &o)
		var now struct{ Status, Message string }
		h.until("the restore is at "+message, func() bool {
			h.call("GET", "/operations/"+o.ID, nil, &now)
			return message == "" || now.Message == message || now.Status == "success"
		})
		h.Kill()
		ok(h.t, h.Start(h.t.Context()))
		h.done(o)
		h.shows(s.URL, "Second news", false)
		h.shows(s.URL, "First news", true)
	}
	var b backupBody
	for _, point := range []string{"", "running", "completed"} {
		b = backupBody{}
		h.call("POST", "/sites/"+s.ID+"/backups", nil, &b)
		h.soon("the backup is "+point, func() bool {
			h.call("GET", "/backups/"+b.ID, nil, &b)
			return point == "" || b.Status == point || b.Status == "completed"
		})
		h.Kill()
		ok(h.t, h.Start(h.t.Context()))
		h.until("the backup has ended", func() bool {
			h.call("GET", "/backups/"+b.ID, nil, &b)
			return b.VerifiedAt != nil || b.Error != nil
		})
		if b.Error != nil {
			h.t.Errorf("a backup that was interrupted when it was %q: %s", point, *b.Error)
		}
	}
	h.call("POST", "/sites/"+s.ID+"/backups", nil, &b)
	for pid := range h.servers() {
		ok(h.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	h.until("the backup has ended", func() bool {
		h.call("GET", "/backups/"+b.ID, nil, &b)
		return b.Status == "completed" || b.Status == "failed" && b.Error != nil
	})
	h.backUp(s.ID)
	h.shows(s.URL, "First news", true)
}

// A WordPress's database and pictures can be restored: as they were, in part, to a new site, after the site was
// deleted, and with the whole installation on a new machine, with one command and an age identity.
func TestBackups(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	h.Kill()
	identity, err := age.GenerateX25519Identity()
	ok(t, err)
	h.Flags = append(h.Flags, "--backup-recipient", identity.Recipient().String())
	ok(t, h.Start(t.Context()))
	s := h.ready(h.create("Blog").ID)
	owner, _ := h.login(s)
	var image struct {
		Source string `json:"source_url"`
	}
	owner.rest(
		"POST",
		"/media",
		"image/png",
		strings.NewReader(string(picture)),
		&image,
		"Content-Disposition",
		`attachment; filename="dot.png"`,
	)
	owner.publish("First news", "<img src='"+image.Source+"'>")
	first := h.backUp(s.ID)

	// The archive can be opened without Slipway: the database is SQL, and the picture is unchanged.
	client := world.Request{
		Method: "GET",
		URL:    "http://" + h.Listen + "/api/v1/backups/" + first.ID + "/download?format=zip",
		Header: map[string][]string{"Authorization": {"Bearer " + h.key}},
	}
	got, err := h.Do(t.Context(), client)
	ok(t, err)
	archive, err := zip.NewReader(bytes.NewReader(got.Body), int64(len(got.Body)))
	ok(t, err)
	found, names := map[string]bool{}, []string{}
	for _, f := range archive.File {
		r, err := f.Open()
		ok(t, err)
		text, err := io.ReadAll(r)
		ok(t, err)
		if strings.HasPrefix(f.Name, "storage/") {
			names = append(names, fmt.Sprint(f.Name, " ", len(text)))
		}
		found["picture"] = found["picture"] || strings.HasPrefix(f.Name, "storage/wp-content/uploads/") && string(text) == string(picture)
		found["post"] = found["post"] || f.Name == "database/wordpress.sql" && strings.Contains(string(text), "First news")
	}
	if !found["picture"] || !found["post"] {
		t.Errorf("the archive has %v of %q", found, names)
	}

	owner.publish("Second news", "x")
	h.shows(s.URL, "Second news", true)
	undo := h.restore(first.ID, nil).Result.BackupID
	h.shows(s.URL, "Second news", false)
	h.shows(s.URL, "First news", true)
	if status, _, text := h.visitor(s.URL).get(image.Source); status != 200 || text != string(picture) {
		t.Errorf("the picture after the restore: %d", status)
	}
	h.login(s)
	h.restore(undo, map[string]any{"includes": []string{"database"}})
	h.shows(s.URL, "Second news", true)

	h.interrupted(s, first.ID)

	// The site is deleted and restored under another name.
	var ends struct{ Operation operationBody }
	h.call("DELETE", "/sites/"+s.ID+"?backup=true", nil, &ends)
	last := h.done(ends.Operation).Result.BackupID
	h.until("nothing is left of the site", func() bool {
		for _, path := range h.left(s.ID) {
			if strings.Contains(path, s.ID) {
				return false
			}
		}
		return true
	})
	back := h.ready(h.restore(last, map[string]any{"newSite": map[string]string{"name": "Blog again"}}).Result.SiteID)
	h.shows(back.URL, "First news", true)
	h.login(back)
	// The restored site's links point to itself, not to the original.
	_, _, posts := h.visitor(back.URL).get("/wp-json/wp/v2/posts?_fields=content")
	if plain := strings.ReplaceAll(
		posts,
		`\/`,
		"/",
	); strings.Contains(plain, s.URL) || !strings.Contains(plain, strings.Replace(image.Source, s.URL, back.URL, 1)) {
		t.Errorf("on the new site a post says %s", plain)
	}

	if h.Nodes() > 1 {
		return // storage that nodes share isn't lost with a machine
	}

	// Two backups of the installation, and a restore on a new machine.
	place := filepath.Join(h.Dir, "elsewhere")
	h.installationKilled(place)
	for range 2 {
		out, err := h.CLI("", "backup", "create", "--to", place)
		ok(t, err)
		t.Log(out)
	}
	if _, err := h.CLI(
		"",
		"backup",
		"create",
		"--to",
		filepath.Join(h.Data, "here"),
	); err == nil || !strings.Contains(err.Error(), "outside the data directory") {
		t.Errorf("a backup into the data directory: %v", err)
	}
	key := filepath.Join(h.Dir, "identity")
	ok(t, os.WriteFile(key, []byte(identity.String()+"\n"), 0o600))
	out, err := h.CLI("", "backup", "verify", "--from", place, "--identity", key)
	ok(t, err)
	if !strings.Contains(out, "1 databases were loaded and compared") {
		t.Errorf("verify says %q", out)
	}
	ok(t, h.Stop(t.Context()))
	if _, err := h.CLI(
		"", "backup", "restore", "--from", place, "--identity", key,
	); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a restore over what is there: %v", err)
	}
	ok(t, os.Rename(h.Data, h.Data+".lost"))
	if _, err := h.CLI("", "backup", "restore", "--from", place); err == nil || !strings.Contains(err.Error(), "--identity") {
		t.Errorf("a restore without a key: %v", err)
	}
	h.restoreKilled("backup", "restore", "--from", place, "--identity", key)
	out, err = h.CLI("", "backup", "restore", "--from", place, "--identity", key)
	ok(t, err)
	t.Log(out)
	ok(t, h.Start(t.Context()))
	h.shows(back.URL, "First news", true)
	if status, _, text := h.visitor(back.URL).get(strings.Replace(
		image.Source,
		s.URL,
		back.URL,
		1,
	)); status != 200 || text != string(picture) {
		t.Errorf("the picture on the new machine: %d", status)
	}
	again, _ := h.login(back)
	again.publish("Third news", "x")
	h.shows(back.URL, "Third news", true)
	var b backupBody
	h.call("GET", "/backups/"+last, nil, &b) // the API key works, and the sites' backups are listed
	var o operationBody
	h.call("POST", "/backups/"+last+"/verify", nil, &o)
	h.done(o)
}
