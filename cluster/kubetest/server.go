package kubetest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience limits the API server's start on a busy machine.
const patience = 3 * time.Minute

// Server is an API server with etcd, without nodes and controllers.
type Server struct {
	Config  *rest.Config
	dir     string
	daemons []*exec.Cmd
}

// Binaries returns the folder with etcd and kube-apiserver, or "" if scripts/cluster hasn't built them.
func Binaries() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	found, _ := filepath.Glob(filepath.Join(cache, "slipway-cluster", "*", "bin", "kube-apiserver"))
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// StartServer starts etcd and the API server with additional flags, such as its authorization mode. The caller must
// stop the server even after an error.
func StartServer(bin string, flags ...string) (s *Server, err error) {
	s = &Server{}
	if s.dir, err = os.MkdirTemp("", "slipway-api-"); err != nil {
		return s, err
	}
	var ports [3]string
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return s, err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return s, err
	}
	s.Config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: rand.Text(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 1000, Burst: 1000,
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	err = errors.Join(
		os.WriteFile(s.in("sa.key"), secret, 0o600),
		os.WriteFile(s.in("tokens.csv"), []byte(s.Config.BearerToken+",admin,admin,system:masters\n"), 0o600),
		os.WriteFile(s.Kubeconfig(), fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"c","cluster":{"server":"%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"%s"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]}`, s.Config.Host, s.Config.BearerToken), 0o600),
	)
	if err != nil {
		return s, err
	}
	etcd := "http://127.0.0.1:" + ports[0]
	for _, argv := range [][]string{
		{
			"etcd", "--data-dir", s.in("etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", "http://127.0.0.1:" + ports[1],
		},
		append([]string{
			"kube-apiserver", "--etcd-servers=" + etcd, "--secure-port=" + ports[2], "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
			"--cert-dir=" + s.in("pki"), "--token-auth-file=" + s.in("tokens.csv"), "--service-account-issuer=https://slipway.test",
			"--service-account-key-file=" + s.in("sa.key"), "--service-account-signing-key-file=" + s.in("sa.key"),
			"--service-cluster-ip-range=10.96.0.0/16", "--profiling=false",
		}, flags...),
	} {
		if err := s.daemon(bin, argv); err != nil {
			return s, err
		}
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return s, err
	}
	for late := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err = client.CoreV1().Namespaces().Get(context.Background(), "kube-system", meta.GetOptions{}); err == nil {
			return s, nil
		}
		if time.Now().After(late) {
			return s, fmt.Errorf("the API server is not there: %w\n%s", err, s.Log())
		}
	}
}

func (s *Server) in(name string) string { return filepath.Join(s.dir, name) }

// Kubeconfig returns the path of a kubeconfig file for the server.
func (s *Server) Kubeconfig() string { return s.in("kubeconfig") }

// Log returns the end of the API server's log.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.in("kube-apiserver.log"))
	return string(text[max(0, len(text)-3000):])
}

// daemon starts a program that logs to a file and ends with this process.
func (s *Server) daemon(bin string, argv []string) error {
	log, err := os.Create(s.in(argv[0] + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(filepath.Join(bin, argv[0]), argv[1:]...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return err
	}
	s.daemons = append(s.daemons, c)
	return nil
}

// Stop ends both and deletes their data.
func (s *Server) Stop() {
	for _, d := range s.daemons {
		_ = d.Process.Kill()
		_ = d.Wait()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// FreePort returns an unused port of this machine.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
