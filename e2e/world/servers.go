package world

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// MariaDB starts an operator's server in dir, which requires TLS and has the receiver's certificate. It returns its
// address for --mariadb, and a function that stops it.
func MariaDB(dir string, certificate *Receiver) (address string, stop func(), err error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", nil, err
	}
	if err := writeCertificate(dir, certificate); err != nil {
		return "", nil, err
	}
	// Delete the anonymous users: MariaDB would prefer them to the sites' users for connections from this machine.
	if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte("DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n"+
		"CREATE USER IF NOT EXISTS admin@'%' IDENTIFIED BY 'secret' REQUIRE SSL;\n"+
		"GRANT ALL PRIVILEGES ON *.* TO admin@'%' WITH GRANT OPTION;\n"), 0o600); err != nil {
		return "", nil, err
	}
	common := []string{"--no-defaults", "--user=root", "--basedir=/usr", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir}
	if out, err := exec.Command("mariadb-install-db", append(common, "--skip-test-db")...).CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	host, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		return "", nil, err
	}
	stop, err = run("mariadbd", append(common, "--socket="+filepath.Join(dir, "socket"), "--bind-address="+host, "--port="+port,
		"--init-file="+filepath.Join(dir, "init.sql"), "--innodb-buffer-pool-size=32M", "--performance-schema=OFF",
		"--require-secure-transport=ON", "--ssl-cert="+filepath.Join(dir, "cert.pem"), "--ssl-key="+filepath.Join(dir, "key.pem"))...)
	return "mysql://admin:secret@" + ports[0] + "?tls=true&ca=" + url.QueryEscape(certificate.CA), stop, err
}

// Redis starts an operator's server in dir, which requires TLS and has the receiver's certificate. It returns its
// address for --redis, and a function that stops it.
func Redis(dir string, certificate *Receiver) (address string, stop func(), err error) {
	ports, err := FreePorts(1)
	if err != nil {
		return "", nil, err
	}
	if err := writeCertificate(dir, certificate); err != nil {
		return "", nil, err
	}
	host, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		return "", nil, err
	}
	stop, err = run("redis-server", "--bind", host, "--port", "0", "--tls-port", port, "--dir", dir, "--save", "", "--requirepass", "secret",
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"), "--tls-auth-clients", "no")
	return "rediss://:secret@" + ports[0] + "?ca=" + url.QueryEscape(certificate.CA), stop, err
}

// run starts a server that ends with this process at the latest.
func run(name string, args ...string) (stop func(), err error) {
	server := exec.Command(name, args...)
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return func() { _ = server.Process.Kill(); _ = server.Wait() }, nil
}

func writeCertificate(dir string, of *Receiver) error {
	certificate := of.Certificate()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}
