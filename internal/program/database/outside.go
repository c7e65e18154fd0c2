package database

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"slipway/internal/platform/panics"
)

// ParseServer reads the address of an operator's server:
// mysql://user:password@host:port. The user needs ALL PRIVILEGES and GRANT OPTION.
// With ?tls=true connections are encrypted and the server's certificate is verified, against
// the authorities in the PEM file that &ca= names or the system's.
func ParseServer(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" || u.User == nil || u.User.Username() == "" || u.Hostname() == "" ||
		u.Path != "" && u.Path != "/" {
		return nil, errors.New("the address must be mysql://USER:PASSWORD@HOST:PORT")
	}
	encrypted, err := parseTLS(u)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = u.User.Username(), "tcp", u.Host
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.TLS = encrypted
	return c, nil
}

// parseTLS reads what an address says about TLS; nil: the connection is plain.
func parseTLS(u *url.URL) (*tls.Config, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the address must be mysql://USER:PASSWORD@HOST:PORT?tls=true&ca=FILE")
	}
	for key, values := range query {
		if len(values) != 1 || key != "tls" && key != "ca" {
			return nil, fmt.Errorf("the address has no parameter %s: only ?tls=true, with &ca=FILE if its authority isn't one of the system's", key)
		}
	}
	wanted, file := query.Get("tls"), query.Get("ca")
	switch {
	case !query.Has("tls") && !query.Has("ca"):
		return nil, nil
	case wanted != "true":
		return nil, errors.New("tls must be true, or left out")
	}
	config := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if !query.Has("ca") {
		return config, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read ca: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return config, nil
}

// runOutside connects to the operator's server and sees whether it answers.
func (s *server) runOutside(ctx context.Context) {
	var watch sync.WaitGroup
	watch.Go(func() { panics.Loop(ctx, func(ctx context.Context) { s.d.watch(ctx, s) }) })
	defer watch.Wait()
	up := false
	for ctx.Err() == nil {
		a, err := s.connect(s.outside, "%")
		switch {
		case err == nil && up:
			a.close() // the one in use is as good
		case err == nil:
			s.setUp(a, nil)
			up = true
		default:
			if up {
				s.d.tellAll(s, "The database server does not answer")
			}
			up = false
			s.setDown(err.Error())
			s.log.WarnContext(ctx, "database server does not answer", "err", err)
		}
		wait := time.Second
		if up {
			wait = 5 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	s.setDown("the service is stopping")
}
