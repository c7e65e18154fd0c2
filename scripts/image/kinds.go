package main

import (
	"fmt"
	"time"
)

// machine is the image for a single machine. tini reaps orphaned processes, like init.
var machine = kind{
	title: "Slipway", name: "slipway", program: "usr/bin/slipway",
	packages: []string{
		"bubblewrap", "ca-certificates", "composer", "curl", "git", "mariadb-server", "openssh-client", "php-cli", "php-curl", "php-fpm",
		"php-gd", "php-intl", "php-mbstring", "php-mysql", "php-xml", "php-zip", "redis-server", "tini", "unzip",
	},
	hooks: []string{
		fmt.Sprintf(`chroot "$1" useradd --uid %d --user-group --home-dir /var/lib/slipway --no-create-home --shell /usr/sbin/nologin slipway`, user),
		`install -d -o 10001 -g 10001 -m 0700 "$1/var/lib/slipway"`,
		imageMark,
	},
	config: map[string]any{
		"User": fmt.Sprintf("%d:%d", user, user),
		"Env": []string{
			"PATH=" + paths, "HOME=/var/lib/slipway", "LANG=C.UTF-8",
			"SLIPWAY_DATA_DIR=/var/lib/slipway", "SLIPWAY_LISTEN=:8080", "SLIPWAY_EDGE_HTTP=:80", "SLIPWAY_EDGE_HTTPS=:443",
		},
		"Entrypoint":   []string{"/usr/bin/tini", "--", "/usr/bin/slipway"},
		"Cmd":          []string{"serve"},
		"WorkingDir":   "/var/lib/slipway",
		"ExposedPorts": map[string]struct{}{"80/tcp": {}, "443/tcp": {}, "443/udp": {}, "8080/tcp": {}},
		"Volumes":      map[string]struct{}{"/var/lib/slipway": {}},
		"StopSignal":   "SIGTERM",
		// Health checks are Docker's own; the OCI specification has none.
		"Healthcheck": map[string]any{
			"Test":     []string{"CMD-SHELL", `curl -fsS "http://127.0.0.1:${SLIPWAY_LISTEN##*:}/healthz"`},
			"Interval": 30 * time.Second, "Timeout": 5 * time.Second, "StartPeriod": time.Minute, "Retries": 3,
		},
	},
}

const (
	// imageMark creates a file that marks the installation as an image, which can't be upgraded in place.
	imageMark = `install -d "$1/usr/lib/slipway" && : > "$1/usr/lib/slipway/image"`

	paths = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// runtimeKind returns an image for running programs, with our entry point.
func runtimeKind(title, suffix string, n *node, packages ...string) kind {
	return kind{
		title: title, name: "slipway-runtime", suffix: "-" + suffix, program: "slipway/program", node: n,
		packages: append([]string{"ca-certificates", "procps"}, packages...),
		hooks:    []string{fmt.Sprintf(`chroot "$1" useradd --uid %d --user-group --home-dir /tmp --no-create-home --shell /usr/sbin/nologin slipway`, user)},
		config: map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Env": []string{"PATH=" + paths, "HOME=/tmp", "LANG=C.UTF-8"},
			"Entrypoint": []string{"/slipway/program"}, "Cmd": []string{"run"}, "WorkingDir": "/tmp", "StopSignal": "SIGTERM",
			"ExposedPorts": map[string]struct{}{"8080/tcp": {}},
		},
	}
}

// clusterKinds are the images of a cluster.
var clusterKinds = func() (all []kind) {
	all = append(all, kind{
		title: "Slipway on Kubernetes", name: "slipway-cluster", program: "usr/bin/slipway-cluster", beside: "usr/bin/slipway",
		packages: []string{"ca-certificates", "git", "openssh-client", "tini"},
		hooks:    machine.hooks,
		config: map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Env": []string{"PATH=" + paths, "HOME=/var/lib/slipway", "LANG=C.UTF-8", "SLIPWAY_DATA_DIR=/var/lib/slipway"},
			"Entrypoint": []string{"/usr/bin/tini", "--", "/usr/bin/slipway-cluster"}, "Cmd": []string{"serve"}, "WorkingDir": "/var/lib/slipway",
			"ExposedPorts": map[string]struct{}{"80/tcp": {}, "443/tcp": {}, "443/udp": {}, "8080/tcp": {}}, "StopSignal": "SIGTERM",
		},
	})
	all = append(all, builds)
	for i := range nodes {
		n := &nodes[i]
		all = append(all, runtimeKind("Slipway: programs on Node.js "+n.version, "node"+n.line(), n, "libatomic1", "libstdc++6"))
	}
	return append(all, runtimeKind("Slipway: programs on PHP 8.2", "php8.2", nil, "php-cli", "php-curl", "php-fpm", "php-gd", "php-intl",
		"php-mbstring", "php-mysql", "php-xml", "php-zip"))
}()
