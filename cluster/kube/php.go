package kube

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"slipway/cluster/pod"
	"slipway/internal/build/phpversion"
	"slipway/internal/build/toolchain"
	"slipway/internal/program/php"
	"slipway/internal/program/runtime"
)

// fits describes the environment of a program.
type fits struct {
	image string
	php   phpversion.Version // if the program needs PHP
	limit time.Duration      // time limit of a build; 0: not a build
}

// choose returns the newest image that meets a program's needs. A PHP program that also needs Node.js, as for its
// build, gets it only if an image has both.
func (e *Engine) choose(s runtime.Spec) (fits, error) {
	var have []string
	var php fits
	var why error
	for _, i := range e.c.Images {
		node := i.Node != "" && toolchain.Fits(s.Node, i.Node)
		if i.Node != "" {
			have = append(have, i.Node)
		}
		switch {
		case s.PHP == nil && node:
			return fits{image: i.Name}, nil
		case s.PHP == nil || php.image != "" && !node:
			continue
		}
		var versions []phpversion.Version
		for _, number := range i.PHP {
			versions = append(versions, debian(number))
		}
		v, err := phpversion.Among(versions, s.PHP.Version)
		switch {
		case err != nil:
			if len(versions) > 0 || why == nil {
				why = err
			}
		case node || s.Node == "":
			return fits{image: i.Name, php: v}, nil
		default:
			php = fits{image: i.Name, php: v}
		}
	}
	switch {
	case php.image != "":
		return php, nil
	case why != nil:
		return fits{}, why
	}
	return fits{}, fmt.Errorf("no image on this cluster has Node.js %s: there is %s", s.Node, strings.Join(have, ", "))
}

// debian returns the paths of a PHP version in Debian's packages.
func debian(number string) phpversion.Version {
	v := phpversion.Version{Number: number}
	v.FPM, v.CLI = "/usr/sbin/php-fpm"+v.Minor(), "/usr/bin/php"+v.Minor()
	return v
}

// isFPM reports whether a program is PHP-FPM rather than a command that uses php.
func isFPM(s runtime.Spec) bool { return s.PHP != nil && len(s.Argv) == 0 && s.Shell == "" }

// phpScratch is PHP-FPM's own folder.
const phpScratch = "/tmp/.php"

// phpFiles returns PHP's configuration files by path.
func phpFiles(s runtime.Spec) map[string]string {
	switch {
	case s.PHP == nil:
		return nil
	case !isFPM(s):
		return php.CommandFiles(s.Limits.Memory)
	}
	pool := php.Pool{Memory: s.Limits.Memory, Scratch: phpScratch}
	if folders, err := keeps(s); err == nil && len(folders) > 0 {
		pool.Sessions = sessionsDir
	}
	return pool.Files()
}

func phpKey(i int) string { return "php-" + strconv.Itoa(i) }

// describePHP sets how a program with PHP is started.
func describePHP(s runtime.Spec, v phpversion.Version, d *pod.Description, data map[string][]byte) {
	if s.PHP == nil {
		return
	}
	files := phpFiles(s)
	for i, at := range slices.Sorted(maps.Keys(files)) {
		data[phpKey(i)] = []byte(files[at])
	}
	if !isFPM(s) {
		d.PHP, d.Env = v.CLI, append(d.Env, php.CommandEnv())
		return
	}
	if s.Redis && s.RedisServer {
		d.Cache = true
		d.Env = append(d.Env, "SLIPWAY_REDIS="+runtime.RedisServerSocket, "SLIPWAY_REDIS_EPOCHS="+pod.EpochFile+":"+pod.EpochOwn)
	}
	d.Argv, d.Env, d.FPM = php.Argv(v), append(d.Env, php.Env()...), phpScratch
}

func phpMounts(s runtime.Spec) (mounts []core.VolumeMount) {
	for i, at := range slices.Sorted(maps.Keys(phpFiles(s))) {
		mounts = append(mounts, core.VolumeMount{Name: volumeSpec, MountPath: path.Clean(at), SubPath: phpKey(i), ReadOnly: true})
	}
	return mounts
}

// told returns the handler of a program's output. It parses PHP-FPM's, as on a single machine.
func told(s runtime.Spec) func(stream, line string) {
	if s.PHP == nil || s.Output == nil {
		return s.Output
	}
	return func(stream, line string) {
		if stream == "stderr" {
			line = php.Line(line)
		}
		s.Output(stream, line)
	}
}
