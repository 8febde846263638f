package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// UnusedAddress returns an address of the host that nobody listened at a moment ago, with a port below those that
// systems give to whoever asks for any, Linux from 32768 on: so that none is given away while a server is stopped or
// only about to start.
func UnusedAddress(host string) (string, error) {
	const lowest, highest, tries = 12000, 32000, 100
	var last error
	for range tries {
		port := lowest + rand.IntN(highest-lowest)                                     //nolint:gosec // any will do
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // it does not wait
		if err != nil {
			last = err
			continue
		}
		return listener.Addr().String(), errors.Join(listener.Close())
	}
	return "", fmt.Errorf("find a free port on %s: %w", host, last)
}
