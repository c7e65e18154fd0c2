package main

import "fmt"

// builds is the image that builds run in, one pod for each: what the image of one machine has for them, with the Node.js that is
// there where a project asks for none, and others fetched. The PHP of a build is one that can answer requests, so FPM is there. One
// program is the pod's entry point and carries the build out.
var builds = kind{
	title: "Slipway: builds", name: "slipway-build", program: "slipway/build", node: &nodes[1],
	packages: []string{
		"ca-certificates", "composer", "git", "libatomic1", "libstdc++6", "openssh-client", "php-cli", "php-curl", "php-fpm", "php-gd",
		"php-intl", "php-mbstring", "php-mysql", "php-xml", "php-zip", "procps", "unzip",
	},
	hooks: []string{
		fmt.Sprintf(`chroot "$1" useradd --uid %d --user-group --home-dir /tmp --no-create-home --shell /usr/sbin/nologin slipway`, user),
		`install -d "$1/slipway" && ln -s build "$1/slipway/program"`,
	},
	config: map[string]any{
		"User": fmt.Sprintf("%d:%d", user, user), "Env": []string{"PATH=" + paths, "HOME=/tmp", "LANG=C.UTF-8"},
		"Entrypoint": []string{"/slipway/build"}, "Cmd": []string{"run"}, "WorkingDir": "/tmp", "StopSignal": "SIGTERM",
	},
}
