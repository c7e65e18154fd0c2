package upgrade

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"aead.dev/minisign"
	"golang.org/x/mod/semver"

	"slipway/internal/platform/lazyregexp"
)

// Source says where a release comes from, and why it is trusted.
type Source struct {
	Archive string   // slipway_VERSION_linux_ARCH.tar.gz, with SHA256SUMS and SHA256SUMS.minisig beside it. An https:// address, too.
	Keys    []string // public keys of minisign, one of which must have signed
	SHA256  string   // of the archive, in hexadecimal. Optional: trusted in the place of a signature.
	Version string   // that its program must have. Optional.
}

// About is what a program says of itself.
type About struct {
	Version string `json:"version"`
	Schema  int64  `json:"schema"`       // newest schema version that it knows
	Oldest  int64  `json:"oldestReader"` // schema version of the oldest program that works with its schema
}

// The bounds of a release's files, in bytes.
const (
	maxSums    = 64 << 10
	maxSig     = 4 << 10
	maxArchive = 512 << 20
	maxProgram = 1 << 30
)

var archiveName = lazyregexp.New(`^slipway_([0-9][0-9A-Za-z.+~-]{0,99})_linux_(amd64|arm64)\.tar\.gz$`)

// fetch verifies a release and writes its program to file, which must not be there.
func (s Source) fetch(ctx context.Context, file string) error {
	name := path.Base(s.Archive)
	m := archiveName.FindStringSubmatch(name)
	if m == nil {
		return fmt.Errorf("%s is not named as a release is, slipway_VERSION_linux_%s.tar.gz", name, runtime.GOARCH)
	}
	if m[2] != runtime.GOARCH {
		return fmt.Errorf("%s is for %s and this machine is %s", name, m[2], runtime.GOARCH)
	}
	want, err := s.digest(ctx, name)
	if err != nil {
		return err
	}
	archive, err := os.CreateTemp(filepath.Dir(file), ".slipway-release-*")
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := os.Remove(archive.Name()); err != nil { // it goes with this process, however that ends
		return err
	}
	from, err := open(ctx, s.Archive)
	if err != nil {
		return err
	}
	defer from.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(archive, h), io.LimitReader(from, maxArchive+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if n > maxArchive {
		return fmt.Errorf("%s is larger than %d MiB", name, maxArchive>>20)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has the SHA-256 %s, not %s: it was changed or cut off", name, got, want)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return extract(archive, file)
}

// digest returns the SHA-256 that the archive must have: the one that was given, or the signed list's.
func (s Source) digest(ctx context.Context, name string) (string, error) {
	if s.SHA256 != "" {
		if b, err := hex.DecodeString(s.SHA256); err != nil || len(b) != sha256.Size {
			return "", errors.New("--sha256 must have 64 hexadecimal digits")
		}
		return strings.ToLower(s.SHA256), nil
	}
	if len(s.Keys) == 0 {
		return "", errors.New("no key says whose releases to trust: give --release-key, or the archive's --sha256")
	}
	sums, err := s.signed(ctx, strings.TrimSuffix(s.Archive, name), "SHA256SUMS")
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		digest, file, ok := strings.Cut(lines.Text(), "  ")
		if ok && file == name {
			return digest, lines.Err()
		}
	}
	return "", fmt.Errorf("SHA256SUMS doesn't list %s", name)
}

// signed returns the text of a list that one of the keys has signed. Its signature lies beside it.
func (s Source) signed(ctx context.Context, folder, name string) ([]byte, error) {
	list, err := small(ctx, folder+name, maxSums)
	if err != nil {
		return nil, err
	}
	signature, err := small(ctx, folder+name+".minisig", maxSig)
	if err != nil {
		return nil, err
	}
	for _, k := range s.Keys {
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(k)); err != nil {
			return nil, fmt.Errorf("--release-key: %w", err)
		}
		if minisign.Verify(key, list, signature) {
			return list, nil
		}
	}
	return nil, fmt.Errorf("%s is not signed by a key that you trust: nothing was changed", name)
}

// open reads a file, or what an https:// address answers.
func open(ctx context.Context, at string) (io.ReadCloser, error) {
	if !strings.Contains(at, "://") {
		return os.Open(at)
	}
	if !strings.HasPrefix(at, "https://") {
		return nil, fmt.Errorf("%s: releases are fetched over https alone", at)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		cancel()
		return nil, err
	}
	body := &fetched{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		body.Close()
		return nil, fmt.Errorf("fetch %s: %s", at, res.Status)
	}
	return body, nil
}

// fetched is a body whose request ends with it.
type fetched struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (f *fetched) Close() error {
	f.cancel()
	return f.ReadCloser.Close()
}

func small(ctx context.Context, at string, most int64) ([]byte, error) {
	r, err := open(ctx, at)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it is larger than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path.Base(at), err)
	}
	return b, nil
}

// extract writes the archive's program to file.
func extract(archive io.Reader, file string) error {
	z, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("unpack the release: %w", err)
	}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("the release has no program")
		}
		if err != nil {
			return fmt.Errorf("unpack the release: %w", err)
		}
		if path.Base(h.Name) != "slipway" || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > maxProgram {
			return errors.New("the release's program is too large")
		}
		return writeProgram(file, t)
	}
}

// writeProgram makes an executable that is on the disk when it returns.
func writeProgram(file string, from io.Reader) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Chmod(0o755) // whatever the umask is
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ask runs a program and returns what it says of itself.
func ask(ctx context.Context, program string) (a About, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	run := func() ([]byte, error) {
		c := exec.CommandContext(ctx, program, "version", "--json")
		c.WaitDelay = time.Second
		return c.Output()
	}
	out, err := run()
	for errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil { // a child that was forked while it was written has it open still
		time.Sleep(10 * time.Millisecond)
		out, err = run()
	}
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err == nil && (a.Version == "" || a.Schema == 0) {
		err = errors.New("it does not say which version it is")
	}
	if err != nil {
		return a, fmt.Errorf("%s version --json: %w", program, err)
	}
	return a, nil
}

// older reports whether version a is older than b. One that is none, as of a build by hand, is not.
func older(a, b string) bool {
	a, b = "v"+a, "v"+b
	return semver.IsValid(a) && semver.IsValid(b) && semver.Compare(a, b) < 0
}

// trimmed returns keys without those that are empty.
func trimmed(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return strings.TrimSpace(k) == "" })
}
