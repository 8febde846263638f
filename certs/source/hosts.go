package source

import (
	"fmt"
	"net"
	"strings"
)

// splitHosts separates names from addresses. The error names each host that is neither.
func splitHosts(hosts []string) (dns []string, ips []net.IP, err error) {
	var wrong problems
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else if name := strings.ToLower(host); isDNSName(name) {
			dns = append(dns, name)
		} else {
			wrong = append(wrong, fmt.Errorf("host %.80q is neither a DNS name nor an IP address: write it without scheme, port and brackets", host))
		}
	}
	if len(wrong) > 0 {
		return nil, nil, wrong
	}
	return dns, ips, nil
}

// isDNSName reports whether a name is valid in a certificate: labels of letters, digits and
// dashes, the first one may be a star. A name of digits and dots is a mistyped address.
func isDNSName(name string) bool {
	if len(name) > 253 || strings.Trim(name, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// problems are errors in the order in which they were found, on one line.
type problems []error

func (p problems) Error() string {
	texts := make([]string, 0, len(p))
	for _, err := range p {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (p problems) Unwrap() []error { return p }
