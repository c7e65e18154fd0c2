package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"slipway/e2e/world"
)

// nginx is the baseline for TLS, with one worker per core.
type nginx struct {
	addr, version string
	cmd           *exec.Cmd
}

// startNginxFiles serves the files in root, tuned as nginx's documentation recommends.
func startNginxFiles(ctx context.Context, dir, host, root string) (*nginx, error) {
	return runNginx(ctx, dir, host, fmt.Sprintf(`root %s;
		sendfile on; tcp_nopush on; tcp_nodelay on;
		keepalive_requests 1000000000; http2_max_concurrent_streams 256;
		open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s; open_file_cache_min_uses 1;`, root))
}

func runNginx(ctx context.Context, dir, host, serve string) (*nginx, error) {
	program, err := findNginx(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := writeCertificate(dir, host); err != nil {
		return nil, err
	}
	ports, err := world.FreePorts(1)
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "user root root;" // its default user may not exist
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off;
pid nginx.pid;
worker_processes %d;
%s
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen %s ssl http2;
		server_name %s;
		ssl_certificate certificate.pem;
		ssl_certificate_key key.pem;
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_session_cache shared:tls:16m;
		ssl_session_tickets on;
		%s
	}
}
`, runtime.NumCPU(), user, ports[0], host, serve)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	n := &nginx{addr: ports[0]}
	version, err := exec.CommandContext(ctx, program, "-V").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("nginx does not run here, please apt-get install nginx: %w: %s", err, version)
	}
	n.version = versions(string(version))
	log, err := os.Create(filepath.Join(dir, "error.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(program, "-p", dir, "-c"+conf, "-e", log.Name(), "-g", "error_log "+log.Name()+" crit;")
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	if err := answers(ctx, n.addr); err != nil {
		n.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("start nginx: %w: %s", err, said)
	}
	return n, nil
}

func (n *nginx) stop() {
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd.Wait() // the exit status of a stopped process doesn't matter
}

// versions returns the versions of nginx and of its TLS library from `nginx -V`.
func versions(text string) string {
	out := "nginx " + regexp.MustCompile(`[0-9][0-9.]*`).FindString(text)
	if libraries := regexp.MustCompile(`[A-Za-z]*SSL [0-9][0-9a-z.]*`).FindAllString(text, -1); len(libraries) > 0 {
		out += " with " + libraries[len(libraries)-1]
	}
	return out
}

// findNginx finds nginx, or unpacks Debian's package into dir. It doesn't install the package, which would leave a web
// server running on port 80.
func findNginx(ctx context.Context, dir string) (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	err := run("apt-get", "download", "-qq", "nginx")
	if err != nil && os.Geteuid() == 0 { // a new machine has no package lists yet
		err = errors.Join(run("apt-get", "update", "-qq"), run("apt-get", "download", "-qq", "nginx"))
	}
	packages, _ := filepath.Glob(filepath.Join(dir, "nginx_*.deb"))
	if len(packages) != 1 {
		return "", fmt.Errorf("there is no nginx to compare with, please apt-get install nginx: %w", err)
	}
	if err := run("dpkg-deb", "--extract", packages[0], "package"); err != nil {
		return "", err
	}
	return filepath.Join(dir, "package", "usr", "sbin", "nginx"), nil
}

// writeCertificate makes a certificate as short as the local authority's: one, without the authority's own.
func writeCertificate(dir, host string) error {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	issuer := &x509.Certificate{Subject: pkix.Name{Organization: []string{"Slipway"}, CommonName: "yardstick"}}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{host},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(48 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, &key.PublicKey, authority)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "certificate.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
