package kube

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
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/build/bundle"
)

// packLife is how long after a start its files can be fetched. The cluster may first have to add a node.
const packLife = 15 * time.Minute

// packsAtOnce caps concurrent transfers. Further pods retry.
const packsAtOnce = 32

// packs serves programs' files to pods at signed URLs that expire.
type packs struct {
	bundles *bundle.Bundles
	log     *slog.Logger
	key     []byte // signs URLs; unique to this process
	cert    tls.Certificate
	ca      string // cert as given to pods
	// share: total packsAtOnce packs; owner none, a start sends few; edge the pod waits
	slots chan struct{}
}

func newPacks(c Config) (*packs, error) {
	p := &packs{bundles: c.Bundles, log: c.Log, key: make([]byte, 32), slots: make(chan struct{}, packsAtOnce)}
	_, _ = rand.Read(p.key) // can't fail
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	// The certificate is valid as long as the process, whose end also ends all programs that trust it.
	text, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "slipway"}, DNSNames: []string{"slipway"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "slipway"}}, &secret.PublicKey, secret)
	if err != nil {
		return nil, err
	}
	p.cert = tls.Certificate{Certificate: [][]byte{text}, PrivateKey: secret}
	p.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}))
	return p, nil
}

// serve serves pods until ctx ends and passes connections to be forwarded to take. Connections to the canary are closed
// without a response.
func (p *packs) serve(ctx context.Context, l, canary net.Listener, take func(*tls.Conn)) {
	s := &http.Server{
		Handler: p, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{pod.WaysProtocol}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			pod.WaysProtocol: func(_ *http.Server, c *tls.Conn, _ http.Handler) { take(c) },
		},
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	go func() {
		<-ctx.Done()
		s.Close()
		if canary != nil {
			canary.Close()
		}
	}()
	if canary != nil {
		go func() {
			for {
				c, err := canary.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	if err := s.ServeTLS(l, "", ""); err != nil && ctx.Err() == nil {
		p.log.Error("file server for pods failed", "err", err)
	}
}

// sign returns the query of a bundle's URL.
func (p *packs) sign(id bundle.ID, until time.Time) string {
	return url.Values{"until": {strconv.FormatInt(until.Unix(), 10)}, "signature": {p.signature(id, until.Unix())}}.Encode()
}

func (p *packs) signature(id bundle.ID, until int64) string {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(string(id) + "\n" + strconv.FormatInt(until, 10)))
	return hex.EncodeToString(mac.Sum(nil))
}

func (p *packs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := bundle.ID(strings.TrimPrefix(r.URL.Path, "/"))
	until, err := strconv.ParseInt(r.FormValue("until"), 10, 64)
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	case err != nil || !hmac.Equal([]byte(r.FormValue("signature")), []byte(p.signature(id, until))):
		http.Error(w, "the address is not signed by this process", http.StatusForbidden)
		return
	case time.Now().Unix() > until:
		http.Error(w, "the address has expired", http.StatusForbidden)
		return
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-r.Context().Done():
		return
	}
	// A pod that doesn't read loses its place.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Minute))
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := p.bundles.WritePack(r.Context(), id, w); err != nil {
		p.log.Warn("files of a program not sent", "bundle", id, "err", err)
		panic(http.ErrAbortHandler) // so that the pod notices the truncation
	}
}

// address returns the address at which pods reach a listener.
func address(host string, l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(host, port)
}
