package pod

import (
	"io"
	"net"
	"sync"
)

// Half is a connection of which one direction can be ended.
type Half interface {
	net.Conn
	CloseWrite() error
}

// Join passes bytes on between two connections until both sides have ended.
func Join(a, b Half) {
	one := func(from, to Half) {
		if _, err := io.Copy(to, from); err != nil { // one side is gone: the other learns it
			from.Close()
			to.Close()
			return
		}
		_ = to.CloseWrite()
	}
	var both sync.WaitGroup
	both.Go(func() { one(a, b) })
	both.Go(func() { one(b, a) })
	both.Wait()
}
