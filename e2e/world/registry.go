package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/egress"
)

// Registry returns the flags that let the program use the npm registry behind a private mirror: they allow the
// registry's addresses if these aren't public, and trust the additional root certificates that npm is configured to
// trust.
var Registry = sync.OnceValues(func() ([]string, error) {
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		return nil, fmt.Errorf("npm is needed, and does not run: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("npm config get registry names no address")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, errors.New("real projects are built, and the npm registry's name can't be resolved from here")
	}
	var flags []string
	for _, a := range addrs {
		a = a.Unmap()
		if !egress.Public(a) {
			flags = append(flags, "--outbound-allow", netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	if roots := Roots(); roots != "" {
		flags = append(flags, "--outbound-ca-file", roots)
	}
	return flags, nil
})

// Roots returns the file of npm's additional root certificates, or "".
func Roots() string {
	if roots := os.Getenv("NODE_EXTRA_CA_CERTS"); roots != "" {
		return roots
	}
	out, err := exec.Command("npm", "config", "get", "cafile").Output()
	if name := strings.TrimSpace(string(out)); err == nil && filepath.IsAbs(name) {
		return name
	}
	return ""
}
