package main

import (
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// buildImage is the image of the tests' builds: Node.js and npm of this machine, what their scripts call, and the
// program that carries builds out.
const buildImage = "localhost/slipway-build:test"

// buildPrograms are what is in it of this machine.
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

func buildFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	for _, program := range buildPrograms {
		at, err := exec.LookPath(program)
		if err != nil {
			return nil, err
		}
		files["usr/bin/"+program] = at
		libraries, err := exec.Command("ldd", at).Output()
		if err != nil {
			return nil, err
		}
		for _, m := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(libraries), -1) {
			files[strings.TrimPrefix(m[1], "/")] = m[1]
		}
	}
	files["bin/sh"] = files["usr/bin/sh"]
	files["slipway/build"] = filepath.Join(dir, "slipway-build")
	files["slipway/program"] = linkTo + "build"
	files["bin/bash"] = files["usr/bin/bash"]
	npm, err := exec.LookPath("npm")
	if err == nil {
		npm, err = filepath.EvalSymlinks(npm)
	}
	if err != nil {
		return nil, err
	}
	tree := filepath.Dir(filepath.Dir(npm)) // …/npm/bin/npm-cli.js
	if strings.HasPrefix(npm, "/usr/share/nodejs/") {
		tree = "/usr/share/nodejs" // Debian's has its dependencies there
	}
	if filepath.Base(filepath.Dir(filepath.Dir(npm))) != "npm" {
		return nil, fmt.Errorf("npm is not where it is expected: %s", npm)
	}
	files["usr/bin/npm"] = linkTo + npm
	files["usr/bin/npx"] = linkTo + strings.Replace(npm, "npm-cli", "npx-cli", 1)
	return files, filepath.WalkDir(tree, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		at := strings.TrimPrefix(name, "/")
		if e.Type()&fs.ModeSymlink == 0 {
			files[at] = name
			return nil
		}
		real, err := filepath.EvalSymlinks(name)
		if err == nil {
			files[at] = linkTo + real
		}
		return nil // one that leads nowhere is left out
	})
}
