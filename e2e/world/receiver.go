package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

// Delivery is a received webhook request.
type Delivery struct {
	Path   string
	Header http.Header
	Body   []byte
	At     time.Time
	Status int // status of the answer

	Event string          // from the body
	Data  json.RawMessage // from the body
}

// Receiver is an HTTPS server that stores its requests. Its certificate is from its own authority.
type Receiver struct {
	URL    string // https://localhost:port
	CA     string // file with the authority's certificate
	server *httptest.Server

	mu     sync.Mutex // guards the following fields
	got    []Delivery
	answer map[string][]int         // path → statuses of the next answers; then 200
	held   map[string]chan struct{} // path → closed when its requests may be answered
	files  map[string][]byte        // path → content for GET
	more   chan struct{}            // closed and replaced at every delivery
}

func newReceiver(dir string) (*Receiver, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, leaf, err := authority()
	if err != nil {
		return nil, err
	}
	r := &Receiver{
		CA:     filepath.Join(dir, "ca.pem"),
		answer: map[string][]int{},
		held:   map[string]chan struct{}{},
		files:  map[string][]byte{},
		more:   make(chan struct{}),
	}
	if err := os.WriteFile(r.CA, ca, 0o644); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.CA, 0o644); err != nil { // regardless of the umask: builds and programs read it
		return nil, err
	}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.receive))
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}}
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // errors of killed clients are expected
	r.server.StartTLS()
	_, port, _ := net.SplitHostPort(r.server.Listener.Addr().String())
	r.URL = "https://localhost:" + port
	return r, nil
}

// Hang starts a second server on another port that accepts requests and answers none of them until the given time has
// passed.
func (r *Receiver) Hang(long time.Duration) (url string, end func(), err error) {
	ended := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-time.After(long):
		case <-ended:
		}
	}))
	s.TLS = &tls.Config{Certificates: r.server.TLS.Certificates}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	return "https://localhost:" + port, func() { close(ended); s.CloseClientConnections(); s.Close() }, err
}

// Close stops the server.
func (r *Receiver) Close() { r.server.CloseClientConnections(); r.server.Close() }

// Certificate returns the receiver's certificate for localhost and 127.0.0.1, for other servers whose clients trust CA.
func (r *Receiver) Certificate() tls.Certificate { return r.server.TLS.Certificates[0] }

// authority makes a certificate authority and a certificate for localhost.
func authority() (ca []byte, leaf tls.Certificate, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, leaf, err
	}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "receiver's authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	if err != nil {
		return nil, leaf, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, leaf, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    root.NotBefore,
		NotAfter:     root.NotAfter,
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, cert, root, key.Public(), caKey)
	if err != nil {
		return nil, leaf, err
	}
	return pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}, nil
}

func (r *Receiver) receive(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(io.LimitReader(q.Body, 1<<20))
	if err != nil { // the sender died: nothing was delivered
		return
	}
	d := Delivery{Path: q.URL.Path, Header: q.Header.Clone(), Body: body, At: time.Now(), Status: 200}
	var head struct {
		Event string
		Data  json.RawMessage
	}
	if json.Unmarshal(body, &head) == nil {
		d.Event, d.Data = head.Event, head.Data
	}
	r.mu.Lock()
	if next := r.answer[d.Path]; len(next) > 0 {
		d.Status, r.answer[d.Path] = next[0], next[1:]
	}
	file, ok := r.files[d.Path]
	if ok = ok && q.Method == http.MethodGet; !ok {
		r.got = append(r.got, d)
		close(r.more)
		r.more = make(chan struct{})
	}
	held := r.held[d.Path]
	r.mu.Unlock()
	if ok {
		if kind := mime.TypeByExtension(path.Ext(d.Path)); kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		_, _ = w.Write(file)
		return
	}
	if held != nil {
		select {
		case <-held:
		case <-q.Context().Done():
			return
		}
	}
	w.WriteHeader(d.Status)
	io.WriteString(w, "thanks")
}

// Answer sets the statuses of the next deliveries to a path. Later ones get 200.
func (r *Receiver) Answer(path string, statuses ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer[path] = append(r.answer[path], statuses...)
}

// Serve sets the content of a path.
func (r *Receiver) Serve(path string, file []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[path] = file
}

// Hold keeps current and later requests to a path unanswered until release is called.
func (r *Receiver) Hold(path string) (release func()) {
	held := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[path] = held
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.held, path)
		close(held)
	})
}

// All returns all deliveries so far.
func (r *Receiver) All() []Delivery { return r.From(0) }

// From returns the deliveries so far except the first n, for callers that poll.
func (r *Receiver) From(n int) []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Delivery(nil), r.got[n:]...)
}

// Wait returns the matching deliveries as soon as there are n.
func (r *Receiver) Wait(ctx context.Context, n int, match func(Delivery) bool) ([]Delivery, error) {
	for {
		r.mu.Lock()
		more := r.more
		var hits []Delivery
		for _, d := range r.got {
			if match(d) {
				hits = append(hits, d)
			}
		}
		r.mu.Unlock()
		if len(hits) >= n {
			return hits, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return hits, fmt.Errorf("%d of %d deliveries came: %w", len(hits), n, context.Cause(ctx))
		}
	}
}

// Signature returns the X-Service-Signature of a body with a secret.
func Signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
