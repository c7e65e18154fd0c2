package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"slipway/internal/edge/front"
	"slipway/internal/platform/visit"
	"slipway/internal/platform/wait"
)

// here trusts this machine's addresses as proxies.
var here = front.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// asked is a program that answers with the headers that describe its visitor.
func asked(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, strings.Join([]string{
		r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Real-Ip"), r.Header.Get("X-Forwarded-Proto"), r.Host,
		r.Header.Get("CF-Connecting-IP") + r.Header.Get("True-Client-IP") + strings.Join(r.Header["X_client_ip"], ",") + r.Header.Get("X-Visitor") + strings.Join(r.Header["X_visitor"], ","),
	}, " "))
}

// Behind a proxy that terminates TLS, sites, programs and the control plane answer over plain HTTP and see the
// visitor's address.
func TestBehindAProxyThatEndsTLS(t *testing.T) {
	t.Parallel()
	d := &diary{tops: map[visit.Name]int64{}}
	p := startProgram(t, asked, func(c *Config) {
		c.Proxies = here
		c.Visits, c.VisitsEvery = visitsTo(d.add), 5*time.Millisecond
		c.Control = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "control plane for ", r.RemoteAddr[:strings.LastIndexByte(r.RemoteAddr, ':')], r.TLS != nil)
		})
		c.Certificates = certificates{answer: c.Certificates.Certificate, challenge: func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "proof")
			return true
		}}
	})
	p.live("s2", "blog", stateLive, p.publish(map[string]string{"index.html": "home"}))
	https := []string{"X-Forwarded-Proto: https", "X-Forwarded-For: 6.6.6.6, 203.0.113.7"}
	for range 2 { // the second answer could come from the fast path
		p.get("http://blog.sites.test/", https...).want(t, 200, "home")
		p.get("https://blog.sites.test/", "X-Forwarded-For: 203.0.113.7").want(t, 200, "home")
		p.get("http://app.sites.test/x", https...).want(t, 200, "203.0.113.7 203.0.113.7 https app.sites.test ")
		// A proxy may forward other headers unchanged from visitors, as nginx does. The edge removes them.
		if a := p.get("https://app.sites.test/x", "X-Forwarded-For: 2001:db8::1", "CF-Connecting-IP: 6.6.6.6", "True-Client-IP: 6.6.6.6", "X_Client_IP: 6.6.6.6").
			want(t, 200, "2001:db8::1 2001:db8::1 https app.sites.test "); strings.Contains(a.body, "6.6.6.6") {
			t.Error(a.body)
		}
	}
	p.get("http://panel.test/", https...).want(t, 200, "control plane for 203.0.113.7true")
	p.get("http://blog.sites.test/.well-known/acme-challenge/x", https...).want(t, 200, "proof")
	// Requests that reached the proxy without TLS are redirected to https, on either listener.
	p.get("http://blog.sites.test/", "X-Forwarded-Proto: http").want(t, 308, "")
	p.get("https://blog.sites.test/", "X-Forwarded-Proto: http").want(t, 308, "")
	p.get("http://blog.sites.test/").want(t, 308, "")
	p.until("all are counted", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.total >= 8 })
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) == 0 {
		t.Error("no line of the access log")
	}
	for _, l := range d.lines {
		if l.Host == "blog.sites.test" && l.Address != "203.0.113.0" {
			t.Errorf("the access log names %q: %+v", l.Address, l)
		}
	}
}

// A visitor that isn't a trusted proxy can't forge an address or scheme in any header that programs trust.
func TestVisitorsClaimNothing(t *testing.T) {
	t.Parallel()
	for way, header := range map[int]string{byReverseProxy: "X-Visitor", byServer: "x_visitor", byAll: "X-Visitor"} {
		p := startProgramBy(t, way, asked, func(c *Config) {
			c.Proxies = front.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: header}
		})
		forged := []string{
			"X-Forwarded-Proto: https", "X-Forwarded-For: 6.6.6.6", "True-Client-IP: 6.6.6.6", "X-Client-IP: 6.6.6.6", "x_client_ip: 6.6.6.6",
			"CF-Connecting-IP: 6.6.6.6", "X-Visitor: 6.6.6.6", "X_Visitor: 6.6.6.6",
		}
		if a := p.get("https://app.sites.test/", forged...).want(t, 200, "127.0.0.1 127.0.0.1 https app.sites.test "); strings.Contains(a.body, "6.6.6.6") {
			t.Errorf("%d: %s", way, a.body)
		}
		p.get("http://app.sites.test/", forged...).want(t, 308, "")
	}
}

// If the Header setting names a header, only that header counts.
func TestHeaderOfTheProxy(t *testing.T) {
	t.Parallel()
	p := startProgram(t, asked, func(c *Config) { c.Proxies = front.Proxies{Networks: here.Networks, Header: "CF-Connecting-IP"} })
	a := p.get("https://app.sites.test/", "X-Forwarded-For: 6.6.6.6", "CF-Connecting-IP: 203.0.113.7", "CF_Connecting_IP: 6.6.6.6", "True-Client-IP: 6.6.6.6").
		want(t, 200, "203.0.113.7 203.0.113.7 https app.sites.test 203.0.113.7")
	if strings.Contains(a.body, "6.6.6.6") {
		t.Error(a.body)
	}
	p.get("https://app.sites.test/", "X-Forwarded-For: 6.6.6.6").want(t, 200, "127.0.0.1 127.0.0.1 https")
}

// The edge works behind nginx configured as its guide says, with TLS terminated and re-encrypted or plain to the edge,
// and with the headers that Caddy's reverse_proxy sends.
func TestBehindNginx(t *testing.T) {
	t.Parallel()
	p := startProgram(t, asked, func(c *Config) { c.Proxies = here })
	p.live("s2", "blog", stateLive, p.publish(map[string]string{"index.html": "home"}))
	for name, to := range map[string]string{
		"plain": "proxy_pass http://" + p.http + ";",
		"TLS":   "proxy_pass https://" + p.https + "; proxy_ssl_server_name on; proxy_ssl_name $host;",
	} {
		c := p.behindNginx(to)
		for url, want := range map[string]string{
			"https://app.sites.test/":  "203.0.113.7 203.0.113.7 https app.sites.test ",
			"https://blog.sites.test/": "home",
			"https://panel.test/":      "control plane",
		} {
			for range 2 {
				a := ask(t, c, url)
				a.want(t, 200, want)
			}
		}
		if a := ask(t, c, "http://blog.sites.test/"); a.status != 308 || !strings.HasPrefix(a.header.Get("Location"), "https://blog.sites.test") {
			t.Errorf("%s: without TLS: %d %v", name, a.status, a.header)
		}
	}
	caddy := []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: app.sites.test", "X-Forwarded-Proto: https", "Via: 1.1 Caddy"}
	p.get("http://app.sites.test/", caddy...).want(t, 200, "203.0.113.7 203.0.113.7 https app.sites.test ")
}

// behindNginx starts nginx in front of the edge and returns a client that reaches every host through it.
func (w *world) behindNginx(to string) *http.Client {
	t := w.t
	t.Helper()
	nginx := installed(t, "nginx", "/usr/sbin/nginx")
	lent := httptest.NewUnstartedServer(nil)
	lent.StartTLS()
	lent.Close()
	key, err := x509.MarshalPKCS8PrivateKey(lent.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lent.TLS.Certificates[0].Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	dir := t.TempDir()
	// nginx's workers drop root's rights and only get sockets.
	secure, plain := filepath.Join(dir, "secure"), filepath.Join(dir, "plain")
	config := `daemon off; pid ` + dir + `/pid; error_log stderr; events {}
		http {
			access_log off;
			client_body_temp_path ` + dir + `/a; proxy_temp_path ` + dir + `/b; fastcgi_temp_path ` + dir + `/c;
			uwsgi_temp_path ` + dir + `/d; scgi_temp_path ` + dir + `/e;
			server {
				listen unix:` + plain + `; listen unix:` + secure + ` ssl;
				ssl_certificate ` + dir + `/both.pem; ssl_certificate_key ` + dir + `/both.pem;
				location / {
					` + to + `
					proxy_set_header Host $host;
					proxy_set_header X-Forwarded-For 203.0.113.7;
					proxy_set_header X-Forwarded-Proto $scheme;
				}
			}
		}`
	for name, text := range map[string][]byte{"both.pem": both, "nginx.conf": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(nginx, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	wait.Until(t, "nginx listens", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx: %v: %s", err, out)
		default:
		}
		c, err := net.Dial("unix", secure)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			to := secure
			if strings.HasSuffix(addr, ":80") {
				to = plain
			}
			return new(net.Dialer).DialContext(ctx, "unix", to)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport: tr, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// installed returns the path of a Debian package's program, and installs the package if it can.
func installed(t testing.TB, name, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		install := exec.CommandContext(t.Context(), "apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "-qq", "--no-install-recommends", name)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1") // don't start its service
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("NOT TESTED BEHIND %s: it can't be installed: %v: %s", name, err, out)
		}
	}
	return path
}

func ask(t testing.TB, c *http.Client, url string) answer {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}
