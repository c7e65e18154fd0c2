package database

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ParseServer reads the address of an operator's server:
// mysql://user:password@host:port. The user needs ALL PRIVILEGES and GRANT OPTION.
func ParseServer(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "mysql" || u.User == nil || u.User.Username() == "" || u.Hostname() == "" ||
		u.Path != "" && u.Path != "/" ||
		u.RawQuery != "" {
		return nil, errors.New("the address must be mysql://USER:PASSWORD@HOST:PORT")
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = u.User.Username(), "tcp", u.Host
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return c, nil
}

// runOutside connects to the operator's server and sees whether it answers.
func (s *server) runOutside(ctx context.Context) {
	var watch sync.WaitGroup
	watch.Go(func() { s.d.watch(ctx, s) })
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
