package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what is read into testdata")

// Events as documented by the Git providers, with their signatures, are read as testdata expects.
func TestRecorded(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 19 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	const secret = SecretPrefix + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil || len(a.Files) != 3 {
				t.Fatalf("%d parts, %v", len(a.Files), err)
			}
			h, body := http.Header{}, a.Files[1].Data
			for line := range strings.Lines(string(a.Files[0].Data)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				h.Set(name, value)
			}
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(body)
			sum := hex.EncodeToString(mac.Sum(nil))
			p, _, _ := Recognize(h)
			name, value := map[Provider]string{
				GitHub:    "X-Hub-Signature-256",
				Gitea:     "X-Gitea-Signature",
				GitLab:    "X-Gitlab-Token",
				Bitbucket: "X-Hub-Signature",
			}[p], "sha256="+sum
			switch p {
			case Gitea:
				value = sum
			case GitLab:
				value = secret
			}
			for what, bad := range map[string]string{
				"nothing":          "",
				"another secret's": strings.Replace(value, value[len(value)-4:], "0000", 1),
			} {
				h.Set(name, bad)
				if Verify(h, body, secret, time.Now()) == nil {
					t.Errorf("signed with %s", what)
				}
			}
			h.Set(name, value)
			if err := Verify(h, body, secret, time.Now()); err != nil {
				t.Error(err)
			}
			if p == GitLab { // its signing token
				h.Del(name)
				key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
				mac := hmac.New(sha256.New, key)
				at := fmt.Sprint(time.Now().Unix())
				mac.Write([]byte("msg_1." + at + "."))
				mac.Write(body)
				h.Set("Webhook-Id", "msg_1")
				h.Set("Webhook-Timestamp", at)
				h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
				if err := Verify(h, body, secret, time.Now()); err != nil {
					t.Errorf("signed as Standard Webhooks: %v", err)
				}
			}
			if Delivery(h) == "" {
				t.Error("the call has no name")
			}
			e, err := Read(h, body)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s %s %s, default branch %q\n%q\n", e.Provider, e.Name, e.Kind, e.DefaultBranch, e.Repository)
			for _, c := range e.Changes {
				got += fmt.Sprintf(
					"branch %q tag %q commit %s deleted %v\n%q by %q\nfiles %q all %v\n", c.Branch, c.Tag, c.Commit,
					c.Deleted, c.Message, c.Author, c.Files, c.All,
				)
			}
			if e.Pull != nil {
				got += fmt.Sprintf("%+v\n", *e.Pull)
			}
			if *update {
				a.Files[2].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if want := string(a.Files[2].Data); got != want {
				t.Errorf("read as\n%swant\n%s", got, want)
			}
		})
	}
}
