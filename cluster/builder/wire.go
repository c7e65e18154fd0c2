package builder

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/platform/fault"
)

// order is a pod's build order, stored in the pod's Secret.
type order struct {
	Job  build.Job `json:"job"`
	Cert []byte    `json:"cert"` // of the pod's end of the connection, PEM
	Key  []byte    `json:"key"`
}

// orderFile is the path of the order below the folder of programs.
const orderFile = "build.json"

// rootsFile is the path of the operator's roots, if there are any.
const rootsFile = "roots.pem"

// A frame has a byte for its kind, four for its length, and the content. Frames go both ways.
const (
	frameTree byte = 't' // part of a tree: source and cache to the pod, artifact and cache from it
	frameEnd  byte = 'e' // end of a tree; for an artifact with its description as JSON
	frameLine byte = 'l' // a log line as JSON
	frameGo   byte = 'g' // start of a stage
	frameSkip byte = 's' // a skipped stage
	frameFail byte = 'f' // failure as JSON
)

// maxFrame caps a frame, and chunk is the size of a frame of a tree.
const (
	maxFrame = 256 << 10
	chunk    = 64 << 10
)

// line is a log line.
type line struct {
	Level   string `json:"level"`
	Message string `json:"message"`
	Raw     string `json:"raw,omitempty"`
}

// failure is a fault, or an error for the operator.
type failure struct {
	Fault   bool       `json:"fault"`
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	Details string     `json:"details"`
	Code    string     `json:"code"`
}

var errFrame = errors.New("the connection between the control plane and the build's pod is broken: a part of it is too long")

func writeFrame(w io.Writer, kind byte, p []byte) error {
	if len(p) > maxFrame {
		return errFrame
	}
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(p)))
	_, err := w.Write(append(head, p...))
	return err
}

func readFrame(r io.Reader) (kind byte, p []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, errFrame
	}
	p = make([]byte, size)
	if _, err := io.ReadFull(r, p); err != nil {
		return 0, nil, err
	}
	return head[0], p, nil
}

// treeWriter writes a tree as frames.
type treeWriter struct {
	frame func(kind byte, p []byte) error
}

func (w treeWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		if err := w.frame(frameTree, part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// treeReader reads a tree's frames until the end frame, which it keeps.
type treeReader struct {
	next func() (kind byte, p []byte, err error)
	rest []byte
	end  []byte
	over bool
}

func (r *treeReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.over {
			return 0, io.EOF
		}
		kind, text, err := r.next()
		switch {
		case err != nil:
			return 0, noEOF(err)
		case kind == frameEnd:
			r.end, r.over = text, true
		case kind == frameTree:
			r.rest = text
		default:
			return 0, fmt.Errorf("a frame %q in the middle of files", kind)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// noEOF turns io.EOF into an error, so that a truncated tree doesn't look complete.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

const serverName = "build.slipway"

// newCert creates the certificate of one build, which only the control plane trusts.
func newCert() (cert, key []byte, err error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(48 * time.Hour), // tolerates differing clocks
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	text, err := x509.CreateCertificate(rand.Reader, t, t, &secret.PublicKey, secret)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

func clientTLS(cert []byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cert) {
		return nil, errors.New("no certificate")
	}
	return &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS13}, nil
}

func serverTLS(o order) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}, nil
}
