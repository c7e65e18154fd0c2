package sandbox

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/inside"
)

// stageNetwork inserts the stage before bwrap. It returns the descriptors of the sockets for the shim: the resolver's,
// then those of the carried ports.
func (b *Bubblewrap) stageNetwork(r *run) ([]int, error) {
	if r.c.Network.Proxy == "" {
		return nil, nil
	}
	var sockets []int
	for range 1 + len(r.c.Network.carried()) {
		place, err := os.Open(os.DevNull) // reserves the descriptor until the stage replaces it by a socket
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, r.launch.inherit(place))
	}
	return sockets, nil
}

// throughStage changes a launch of bwrap into one of the stage.
func (b *Bubblewrap) throughStage(r *run, self string, sockets []int) {
	cmd := r.launch.cmd
	args := []string{"slipway", inside.Name, b.name, inside.StageArg}
	var places []string
	for i, fd := range sockets {
		port := uint16(53)
		if i > 0 {
			port = r.c.Network.carried()[i-1]
		}
		places = append(places, fmt.Sprintf("%d:%d", fd, port))
	}
	args = append(args, strings.Join(places, ","))
	cmd.Args = append(append(args, cmd.Path), cmd.Args...)
	cmd.Path = self
	a := cmd.SysProcAttr
	uid, gid, root := os.Geteuid(), os.Getegid(), os.Geteuid() == 0
	if root {
		uid, gid = r.c.UID, r.c.GID
	}
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	a.GidMappingsEnableSetgroups = root // to drop our groups; a plain user has none and may not
	a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE}
}
