package main

import "fmt"

// builds is the image in which builds run, one pod per build: the build tools of the single-machine image, with its
// default Node.js; other versions are downloaded. It includes PHP-FPM, because a build requires a PHP that can serve
// requests. Its entry point runs the build.
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
