package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"slipway/internal/operator/installation"
)

// badMark begins a line at the end of a bad program. Bad programs are copies of this test program, and the line says
// how they behave.
const badMark = "\nbehaves as "

type badProgram struct {
	About json.RawMessage // the output of version --json
	Serve string
}

// own returns this test program.
func own(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// behaves returns the line for a program that reports the installed version, and behaves like this on serve.
func (m *upgrading) behaves(t *testing.T, serve string) string {
	t.Helper()
	about, err := exec.Command(m.Binary, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(badProgram{about, serve})
	if err != nil {
		t.Fatal(err)
	}
	return badMark + string(line)
}

// beBad behaves as the line at the program's end says, and then exits. Without such a line it does nothing.
func beBad() {
	if len(os.Args) < 2 || os.Args[1] != "version" && os.Args[1] != "serve" {
		return
	}
	b, err := bad()
	switch {
	case err != nil:
	case os.Args[1] == "version" && len(os.Args) > 2:
		fmt.Println(string(b.About))
	case os.Args[1] == "version":
		fmt.Println("slipway that is bad")
	default:
		err = b.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func bad() (b badProgram, err error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return b, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return b, err
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-2000), 2000))
	if err != nil {
		return b, err
	}
	at := bytes.LastIndex(tail, []byte(badMark))
	if at < 0 {
		return b, fmt.Errorf("it doesn't say how it behaves")
	}
	return b, json.Unmarshal(tail[at+len(badMark):], &b)
}

func (b badProgram) serve() error {
	if b.Serve == "panics" {
		panic("as it was told")
	}
	data := os.Args[slices.Index(os.Args, "--data-dir")+1]
	release, err := installation.Store{DataDir: data}.Lock()
	if err != nil {
		return err
	}
	defer release()
	if b.Serve == "errors" {
		return b.errors()
	}
	d, err := sql.Open("sqlite", "file:"+filepath.Join(data, "slipway.db")+"?_txlock=immediate")
	if err != nil {
		return err
	}
	if b.Serve == "fills" {
		if err := fill(filepath.Join(data, "filler"), 0); err != nil {
			return err
		}
	}
	tx, err := d.Begin()
	if err != nil {
		return err
	}
	if _, err := tx.Exec("CREATE TABLE half_done AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i, randomblob(100) AS b FROM n"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if b.Serve == "hangs" { // and ignores signals
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		<-time.After(24 * time.Hour) // an empty select would be a deadlock, on which Go exits
	}
	return tx.Commit()
}

// errors answers /readyz with 200 and all other requests with 500.
func (badProgram) errors() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	})
	ended := make(chan error, 3)
	for fd := range 3 {
		l, err := net.FileListener(os.NewFile(uintptr(3+fd), "socket"))
		if err != nil {
			return err
		}
		if fd == 2 { // the sites' HTTPS
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}})
		}
		go func() { ended <- http.Serve(l, handler) }()
	}
	return <-ended
}
