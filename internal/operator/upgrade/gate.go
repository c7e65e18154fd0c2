package upgrade

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
)

// maxCanaries is how many sites are asked.
const maxCanaries = 20

// client asks this machine alone, each time anew.
func client(dial string) *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, dial)
			},
			// The program's certificates may be its own authority's: what is asked is whether it answers.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// local is an address to ask a listener at.
func local(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func status(ctx context.Context, c *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, err
}

// readyz asks the service whether it is ready.
func (c Config) readyz(ctx context.Context) error {
	got, err := status(ctx, client(local(c.Control)), "http://slipway/readyz")
	if err != nil {
		return err
	}
	if got != http.StatusOK {
		return fmt.Errorf("/readyz answers %d", got)
	}
	return nil
}

// canaries returns some sites and what they answer. One that does not answer can't tell of anything.
func (c Config) canaries(ctx context.Context) (list []Canary) {
	if c.Edge == "" {
		return nil
	}
	d, _, err := c.Store.Open(ctx, nil)
	if err != nil {
		return nil
	}
	defer d.Close()
	rows, err := d.Query(ctx, `SELECT host_label FROM live WHERE state = 'live' AND backend = 'files' ORDER BY version DESC LIMIT $1`,
		maxCanaries)
	labels, err := db.Collect(rows, err, func(s db.Scanner) (label string, err error) { return label, s.Scan(&label) })
	if err != nil {
		return nil
	}
	for _, l := range labels {
		host := l + "." + c.SiteDomain
		if got, err := status(ctx, client(local(c.Edge)), "https://"+host+"/"); err == nil && got < 500 {
			list = append(list, Canary{host, got})
		}
	}
	return list
}

// crashes is how often a new program may end before it is ready: what never will be needn't be waited for.
const crashes = 3

// ready waits until the program at path serves and says that it is ready, or has ended too often; 0 is never too often.
func (c Config) ready(ctx context.Context, path string, patience time.Duration, ends int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var why error
	least, looked := -1, time.Time{}
	for {
		if pid, serves := c.Store.Serving(); !serves {
			why = errors.New("it does not run")
		} else if why = runs(pid, path); why == nil {
			if why = c.readyz(ctx); why == nil {
				return nil
			}
		}
		if ends > 0 && time.Since(looked) > time.Second {
			n, counted := c.restarts(ctx)
			if looked = time.Now(); counted && (least < 0 || n < least) { // it begins anew with the restart that we asked for
				least = n
			}
			if counted && n-least >= ends {
				return fmt.Errorf("it ended by itself %d times before it was ready: %w", n-least, why)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was not ready within %s: %w", patience, why)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// restarts is how often systemd has started the program again; nobody else is known to count.
func (c Config) restarts(ctx context.Context) (n int, counted bool) {
	count, ok := c.property(ctx, "NRestarts")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(count)
	return n, err == nil
}

// sockets returns the units whose connections have systemd start the service.
func (c Config) sockets(ctx context.Context) []string {
	names, _ := c.property(ctx, "TriggeredBy")
	return strings.Fields(names)
}

// property returns what systemd says of the service, where it is systemd that runs it.
func (c Config) property(ctx context.Context, name string) (value string, ok bool) {
	if words := strings.Fields(c.Service); len(words) == 0 || filepath.Base(words[0]) != "systemctl" {
		return "", false
	}
	out, err := c.control(ctx, "show")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// runs returns an error unless the process runs the program that has the path now.
func runs(pid int, path string) error {
	exe, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	file, err := os.Stat(path)
	if err == nil && !os.SameFile(exe, file) {
		err = fmt.Errorf("process %d still runs another program", pid)
	}
	return err
}

// well watches a program that is ready: that it goes on running, stays ready, and that sites answer as before.
func (c Config) well(ctx context.Context, x State) error {
	first, _ := c.Store.Serving()
	var unready int
	for end := time.Now().Add(c.Watch); time.Now().Before(end); {
		pid, serves := c.Store.Serving()
		if !serves || pid != first {
			return errors.New("it ended by itself")
		}
		if err := c.readyz(ctx); err == nil {
			unready = 0
		} else if unready++; unready == 3 { // one slow answer is none of the program
			return fmt.Errorf("it is not ready any more: %w", err)
		}
		for _, site := range x.Sites {
			got, err := status(ctx, client(local(c.Edge)), "https://"+site.Host+"/")
			if err == nil && got < 500 {
				continue
			}
			if got, err = status(ctx, client(local(c.Edge)), "https://"+site.Host+"/"); err != nil {
				return fmt.Errorf("%s answered %d before, and now not at all: %w", site.Host, site.Status, err)
			}
			if got >= 500 {
				return fmt.Errorf("%s answered %d before, and now %d", site.Host, site.Status, got)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}
