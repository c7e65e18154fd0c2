package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// buildImage is the image in which tests' builds run: this machine's Node.js, npm, PHP and Composer, the programs that
// their scripts call, and the program that runs builds.
const buildImage = "localhost/slipway-build:test"

// buildPrograms lists the programs of this machine in the image.
var buildPrograms = []string{
	"node", "sh", "bash", "env", "cat", "chmod", "cp", "date", "echo", "grep", "head", "ln", "ls", "mkdir", "mkfifo", "mv", "pwd", "rm", "sed", "sleep",
	"tail", "tr", "uname", "wc",
}

func imageOfBuilds(dir string) error {
	files, err := buildFiles(dir)
	if err != nil {
		return err
	}
	return image(filepath.Join(dir, "build.tar"), buildImage, files, "/slipway/program")
}

func buildFiles(dir string) (contents, error) {
	files := contents{"slipway/build": filepath.Join(dir, "slipway-build"), "slipway/program": linkTo + "build"}
	if err := errors.Join(files.programs(buildPrograms...), files.glibc(), files.php(), files.composer(), files.npm(), files.npmSettings()); err != nil {
		return nil, err
	}
	files["bin/sh"], files["bin/bash"] = files["usr/bin/sh"], files["usr/bin/bash"]
	return files, nil
}

// composer adds Debian's Composer, whose libraries are in PHP's shared folder.
func (c contents) composer() error {
	_, php := phpVersion()
	c["usr/bin/php"], c["usr/bin/composer"] = linkTo+"php"+php, "/usr/bin/composer"
	c["etc/ssl/certs/ca-certificates.crt"] = "/etc/ssl/certs/ca-certificates.crt" // Composer requires it even offline
	return c.tree("/usr/share/php")
}

func (c contents) npm() error {
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.EvalSymlinks(npm)
	}
	if err != nil {
		return err
	}
	tree := filepath.Dir(filepath.Dir(npm)) // …/npm/bin/npm-cli.js
	if strings.HasPrefix(npm, "/usr/share/nodejs/") {
		tree = "/usr/share/nodejs" // Debian's npm has its dependencies there
	}
	if filepath.Base(filepath.Dir(filepath.Dir(npm))) != "npm" {
		return fmt.Errorf("npm is not where it is expected: %s", npm)
	}
	c["usr/bin/npm"] = linkTo + npm
	c["usr/bin/npx"] = linkTo + strings.Replace(npm, "npm-cli", "npx-cli", 1)
	return c.tree(tree)
}
