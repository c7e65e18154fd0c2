package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
	"slipway/internal/program/runtime"
)

// fpmSocket is what PHP-FPM inherits: a name of the pod's network, which nothing in its files can replace while it is held.
const fpmSocket = "@slipway-php"

// listenFPM opens the socket of PHP-FPM. Who connects before PHP-FPM is up waits in its queue.
func listenFPM(scratch string) (*os.File, error) {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fpmSocket})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}

// dialFPM connects to PHP-FPM. While its queue is full a Unix socket says so at once; it is asked again.
func dialFPM() (pod.Half, error) {
	late := time.Now().Add(questionPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fpmSocket})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(late) {
			return nil, err
		}
		time.Sleep(wait)
	}
}

// commandDir is where a command finds the PHP that was chosen for it, by the name php.
const commandDir = "/tmp/.slipway-php"

// offerPHP puts PHP before what else is in an environment's PATH.
func offerPHP(program string, env []string) ([]string, error) {
	if err := os.MkdirAll(commandDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink(program, filepath.Join(commandDir, "php")); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	out := append([]string{}, env...)
	for i, kv := range out {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			out[i] = "PATH=" + commandDir + ":" + list
		}
	}
	return out, nil
}

// sendTime is how long a file may take to be sent.
const sendTime = 5 * time.Minute

// send answers with a file of one of the program's folders.
func send(c net.Conn, length int64, reply func(byte) bool) error {
	_ = c.SetDeadline(time.Now().Add(questionPatience))
	wanted, err := pod.ReadWanted(c, length)
	if err != nil {
		return err
	}
	f, err := openStored(wanted.Folder, wanted.Path)
	if err != nil {
		reply(pod.No)
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		reply(pod.No)
		return nil
	}
	is := pod.File{Size: info.Size(), Changed: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		is.Inode = st.Ino
	}
	text, err := json.Marshal(is)
	if err != nil || !reply(pod.Yes) {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(sendTime))
	if _, err := c.Write(append(text, '\n')); err != nil || is == wanted.Have {
		return err
	}
	_, err = io.CopyN(c, f, is.Size)
	return err
}

// openStored opens a file of a folder, which no link in it leaves, without waiting for what isn't one.
func openStored(folder, name string) (*os.File, error) {
	if !filepath.IsLocal(folder) {
		return nil, fmt.Errorf("%q is no folder of the program", folder)
	}
	root, err := os.OpenRoot(path.Join(runtime.AppDir, folder))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// beginEpoch makes the files that name the epoch of an object cache, which is not used yet.
func beginEpoch() error {
	for _, dir := range []string{path.Dir(pod.EpochFile), path.Dir(pod.EpochOwn)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// It has its size from the beginning: what fills the disk does not keep it from being changed.
	return errors.Join(runtime.BumpEpoch(pod.EpochFile, true), os.WriteFile(pod.EpochOwn, []byte("0000000000000000"), 0o600))
}
