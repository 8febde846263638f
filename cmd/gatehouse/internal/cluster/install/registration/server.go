package registration

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Server is where the API server finds Gatehouse: a URL or a Service.
type Server struct {
	// URL is scheme, host and port, without a path. Empty for a Service.
	URL string
	// Namespace, Service and Port name a Service. Empty for a URL.
	Namespace, Service string
	Port               int32
}

// ParseURL reads "https://host:port".
func ParseURL(text string) (Server, error) {
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "@"):
		// Not repeated: it may hold a password.
		return Server{}, errors.New("a URL with user information is not allowed (hint: the API server shows a client certificate instead)")
	case err == nil && u.Scheme != "https":
		return Server{}, fmt.Errorf("%q: the scheme must be https", text)
	case err != nil, strings.ContainsAny(text, "?#"), u.Path != "" && u.Path != "/", !isHost(u.Hostname()), strings.HasSuffix(u.Host, ":"):
		return Server{}, fmt.Errorf("%q: must be https://HOST or https://HOST:PORT, with an IP address or a DNS name in lower case, and no path or query", text)
	}
	if port := u.Port(); port != "" {
		if _, err := parsePort(port); err != nil {
			return Server{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return Server{URL: "https://" + u.Host}, nil
}

func isHost(host string) bool {
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

// ParseService reads "NAMESPACE/NAME" or "NAMESPACE/NAME:PORT". Without a port
// it is 443, as for the API server.
func ParseService(text string) (Server, error) {
	namespace, rest, ok := strings.Cut(text, "/")
	if !ok {
		return Server{}, fmt.Errorf("%q: must be NAMESPACE/NAME or NAMESPACE/NAME:PORT", text)
	}
	s := Server{Namespace: namespace, Port: 443}
	name, port, withPort := strings.Cut(rest, ":")
	s.Service = name
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return Server{}, fmt.Errorf("%q: the namespace %q must be a DNS label", text, namespace)
	}
	if len(validation.IsDNS1035Label(name)) > 0 {
		return Server{}, fmt.Errorf("%q: the name %q must be a DNS label that begins with a letter", text, name)
	}
	if withPort {
		var err error
		if s.Port, err = parsePort(port); err != nil {
			return Server{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return s, nil
}

func parsePort(text string) (int32, error) {
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("the port %q must be a number from 1 to 65535", text)
	}
	return int32(port), nil
}

// notes returns notes about a URL that is valid but may be a mistake.
func (s Server) notes() []string {
	host := s.host()
	if strings.HasSuffix(host, ".svc") || strings.Contains(host, ".svc.") {
		return []string{fmt.Sprintf("the host %q looks like the name of a Service: kube-apiserver uses the DNS of its host, not the cluster's (hint: an IP address, or a name that its host resolves)", host)}
	}
	return nil
}

// host is the host of a URL.
func (s Server) host() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// names are the names and addresses that the API server verifies the serving
// certificate for: NAME.NAMESPACE.svc for a Service, and the other names under
// which people and probes call it.
func (s Server) names() (dns, addresses []string) {
	if s.Namespace != "" {
		name := s.Service + "." + s.Namespace
		return []string{name + ".svc", name + ".svc.cluster.local", name, s.Service}, nil
	}
	host := s.host()
	if net.ParseIP(host) != nil {
		return nil, []string{host}
	}
	return []string{host}, nil
}
