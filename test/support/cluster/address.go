package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// addresses are those that UnusedAddress has returned.
var addresses sync.Map //nolint:gochecknoglobals // ports belong to the process

// UnusedAddress returns an address of the host at which nobody listens, and that it has not returned before. Its port is
// below those that systems give to whoever asks for any, Linux from 32768 on: nobody takes it while a server is stopped.
func UnusedAddress(host string) (string, error) {
	const lowest, highest, tries = 12000, 32000, 100
	var last error
	for range tries {
		address := net.JoinHostPort(host, strconv.Itoa(lowest+rand.IntN(highest-lowest))) //nolint:gosec // any will do
		if _, taken := addresses.LoadOrStore(address, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", address) //nolint:noctx // it does not wait
		if err != nil {
			last = err
			continue
		}
		return address, errors.Join(listener.Close())
	}
	return "", fmt.Errorf("find a free port on %s: %w", host, last)
}
