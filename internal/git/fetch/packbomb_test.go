package fetch

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"slipway/internal/platform/fault"
)

// pack builds a pack file object by object.
type pack struct {
	bytes.Buffer
	n uint32
}

func (p *pack) add(kind byte, size uint64, extra, content []byte) {
	p.n++
	b := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	p.WriteByte(b)
	p.Write(extra)
	z, _ := zlib.NewWriterLevel(p, 9)
	z.Write(content)
	z.Close()
}

func (p *pack) object(kind byte, name string, content []byte) (oid [20]byte) {
	p.add(kind, uint64(len(content)), nil, content)
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", name, len(content))
	h.Write(content)
	return [20]byte(h.Sum(nil))
}

func (p *pack) finish() []byte {
	head := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.n)
	all := append(head, p.Bytes()...)
	sum := sha1.Sum(all)
	return append(all, sum[:]...)
}

// deltaBomb returns a pack of about 20 KB in which one delta copies 16 MiB of zeros n times.
func deltaBomb(n int) (commit string, data []byte) {
	var p pack
	zeros := make([]byte, 16<<20-1)
	base := p.object(3, "blob", zeros)
	varint := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	delta := append(varint(uint64(len(zeros))), varint(uint64(n*len(zeros)))...)
	for range n {
		delta = append(delta, 0x80|0x70, 0xff, 0xff, 0xff) // copy 0xffffff bytes from 0
	}
	p.add(7, uint64(len(delta)), base[:], delta)
	tree := p.object(2, "tree", append([]byte("100644 zeros\x00"), base[:]...))
	id := p.object(
		1,
		"commit",
		fmt.Appendf(nil, "tree %x\nauthor A <a@b.c> 1700000000 +0000\ncommitter A <a@b.c> 1700000000 +0000\n\nbomb\n", tree),
	)
	return hex.EncodeToString(id[:]), p.finish()
}

// serve answers a shallow fetch of main with the given pack (gitprotocol-http(5), version 0).
func serve(commit string, data []byte) http.HandlerFunc {
	line := func(w io.Writer, text string) { fmt.Fprintf(w, "%04x%s", len(text)+4, text) }
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			line(w, "# service=git-upload-pack\n")
			io.WriteString(w, "0000")
			line(w, commit+" HEAD\x00shallow no-progress symref=HEAD:refs/heads/main\n")
			line(w, commit+" refs/heads/main\n")
			io.WriteString(w, "0000")
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		line(w, "shallow "+commit+"\n")
		io.WriteString(w, "0000")
		if bytes.Contains(body, []byte("done")) {
			line(w, "NAK\n")
			w.Write(data)
		}
	}
}

// A pack of a few kilobytes that unpacks to gigabytes uses only git's memory limit and ends with an error. A smaller
// pack from the same host is fetched.
func TestDeltaBombIsBounded(t *testing.T) {
	h := newHost(t)
	s := open(t, h, func(c *Config) { c.MaxMemory = 256 << 20 })
	r := Request{Site: "bomb", Repository: repo(t, "git.test/acme/bomb"), Branch: "main"}
	commit, data := deltaBomb(40)
	if len(data) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(data))
	}
	f := serve(commit, data)
	h.intercept.Store(&f)
	_, err := s.Fetch(t.Context(), r)
	if f := fault.As(err); f == nil || f.Kind != fault.TooLarge || !strings.Contains(f.Details, "memory") {
		t.Fatalf("Fetch = %v, want that it needs too much memory", err)
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil || used.Maxrss > 400<<10 {
		t.Errorf("a git took %d MiB (%v)", used.Maxrss>>10, err)
	}
	commit, data = deltaBomb(2)
	f = serve(commit, data)
	h.intercept.Store(&f)
	if tree := fetch(t, s, r); tree.Commit != commit {
		t.Errorf("fetched %s, want %s", tree.Commit, commit)
	}
}

// Each git process is killed first when memory runs out, has resource limits, runs as a user of its own if Slipway is
// root, and sees only its own working directory.
func TestGitIsConfined(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	s := open(t, h, nil)
	one := fetch(t, s, Request{Site: "one", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	two := fetch(t, s, Request{Site: "two", Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	uids := map[string]bool{}
	for _, tree := range []*Tree{one, two} {
		stdin, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		k, err := s.start(t.Context(), command{
			args:  []string{"cat-file", "--batch"},
			site:  tree.g.site,
			gen:   tree.g,
			stdin: stdin,
			piped: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { feed.Close(); k.Process.Kill(); k.wait() }()
		// Its first answer shows that git itself runs now, not the program that sets its limits.
		fmt.Fprintln(feed, tree.Commit)
		if _, err := io.ReadFull(k.out, make([]byte, 40)); err != nil {
			t.Fatal(err)
		}
		proc := func(name string) string {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", k.Process.Pid, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if got := strings.TrimSpace(proc("oom_score_adj")); got != "1000" {
			t.Errorf("oom_score_adj = %s", got)
		}
		if limits := proc("limits"); !strings.Contains(limits, fmt.Sprint(s.c.MaxMemory)) {
			t.Errorf("limits:\n%s", limits)
		}
		if os.Geteuid() == 0 && s.helpers != nil {
			uid := strings.Fields(proc("status")[strings.Index(proc("status"), "Uid:"):])[1]
			if uid == "0" || uids[uid] {
				t.Errorf("uid %s", uid)
			}
			uids[uid] = true
			if strings.Contains(proc("environ"), s.path("sites")) {
				t.Error("it was told a path of ours")
			}
		}
	}
}

// A local repository in a directory that only the service can read can still be fetched.
func TestClosedDirectoryIsRead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	if err := os.Chmod(h.root+"/acme/site.git", 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, h, nil)
	for range 2 {
		tree := fetch(t, s, Request{Site: "s", Repository: repo(t, "files.test/acme/site"), Branch: "main"})
		if got := contents(t, tree)["x"]; got != "1" {
			t.Errorf("got %q", got)
		}
	}
}
