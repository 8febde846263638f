package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Options are the flags of serve.
type Options struct {
	CertificateOptions

	Operations OperationOptions
	Recording  RecordingOptions
	Auditing   AuditOptions

	Config     string
	Kubeconfig string
	InCluster  bool
	Namespace  string
	// CustomResources reports whether custom resources are configuration beside the directory.
	CustomResources bool
	// ManageRegistration reports whether the elected replica writes rules and selectors of the webhook configurations.
	ManageRegistration bool
	// LeaveCompiled has nothing sent for policies that the API server enforces itself, by documents of gatehouse compile.
	LeaveCompiled bool
	// OnEmptiedFile is the action on a change that leaves a file without documents.
	OnEmptiedFile string
	// BackChannelLogout is for how long revocations that issuers ask for are kept, 0 for none.
	BackChannelLogout time.Duration
	// Authorize has /authorize answered, and tokens with a scope accepted once the API server asks there.
	Authorize     bool
	Listen        string
	OpsListen     string
	TLSMinVersion string
	Audit         bool
	// InFlight and Connections are 0 for what fits.
	InFlight    int64
	Connections int
	DrainDelay  time.Duration
	LogLevel    string
	// Level is the level of the log, which can change at run time.
	Level     slog.LevelVar
	LogFormat string
}

const (
	// DefaultListen is the default of --listen: all addresses.
	DefaultListen = ":9443"
	// DefaultOpsListen is the default of --ops-listen: all addresses.
	DefaultOpsListen = ":8080"
	// leastLogout is the shortest time for which revocations are kept: a logout token must not outlive them.
	leastLogout = 10 * time.Minute
	// EmptiedFileWarn warns when a file has lost all its documents, and uses the rest.
	EmptiedFileWarn = "warn"
	// EmptiedFileRefuse makes such a configuration invalid.
	EmptiedFileRefuse = "refuse"
)

// AddFlags adds the flags of the options to a command.
func (f *Options) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.Config, "config", "c", "", "directory with policies, profiles and other configuration (required without --custom-resources)")
	flags.StringVar(&f.OnEmptiedFile, "on-emptied-file", EmptiedFileWarn, "what to do when a file of --config still exists and has lost all its documents: warn (use the rest) or refuse (keep the active configuration)")
	flags.BoolVar(&f.CustomResources, "custom-resources", false, "read custom resources from the cluster too: SidecarProfiles, AdmissionPolicies and their bindings, PolicyExceptions, PolicyBaselines, AccessTokens, TokenRevocations and Grants")
	flags.BoolVar(&f.ManageRegistration, "manage-registration", false, "write rules and selectors of the webhook configurations, as the active policies and profiles need them, with --custom-resources; needs what gatehouse manifests --manage-registration prints")
	flags.BoolVar(&f.LeaveCompiled, "leave-compiled", false, "do not have requests sent for AdmissionPolicies and ValidatingAdmissionPolicies that the API server wholly enforces itself, by documents of gatehouse compile that are in the cluster and up to date, with --manage-registration; once they are not, the requests are sent again within seconds; the API server must not have the admission plugin ValidatingAdmissionPolicy disabled")
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace of this replica, with --custom-resources (default: that of the service account, else "+install.DefaultNamespace+")")
	flags.DurationVar(&f.BackChannelLogout, "back-channel-logout", 0, "answer /logout, to which JWT issuers send the sessions that ended (OpenID Connect Back-Channel Logout), and keep their TokenRevocations for this long, at least the lifetime of the issuers' tokens, such as 24h; with --custom-resources; needs the right to create, list and delete tokenrevocations (default: off)")
	flags.BoolVar(&f.Authorize, "authorize", false, "answer /authorize, where API servers ask about requests of tokens with a scope, and accept such tokens as soon as the API server is known to ask; 'gatehouse manifests --authorization' prints its configuration; with a cluster, needs the right to create subjectaccessreviews (default: tokens with a scope are rejected)")
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; policies and profiles look up objects in the cluster of its current context")
	flags.BoolVar(&f.InCluster, "in-cluster", false, "look up objects in the cluster that this pod runs in, with its service account")
	flags.StringVar(&f.Listen, "listen", DefaultListen, "address for reviews, HOST:PORT")
	flags.StringVar(&f.OpsListen, "ops-listen", DefaultOpsListen, "address for health and metrics, HOST:PORT")
	f.addFlags(cmd)
	f.Operations.addFlags(cmd)
	f.Recording.addFlags(cmd)
	f.Auditing.addFlags(cmd)
	flags.StringVar(&f.TLSMinVersion, "tls-min-version", "1.3", "minimum TLS version: 1.3 or 1.2")
	flags.BoolVar(&f.Audit, "audit-authentication", false, "log every token review at level info, including allowed ones, with the user, the source and the token's id")
	flags.Int64Var(&f.InFlight, "max-in-flight-bytes", 0, "maximum bytes of memory for reviews in progress, including decoding, more than 33554432; Gatehouse answers further reviews with 503 (default: computed from the memory limit, 128 MiB without one)")
	flags.IntVar(&f.Connections, "max-connections", 0, "maximum open connections without a client certificate, at least 16; one over HTTP/2 counts as up to 16 (default: computed from the memory limit and the limit of open files, at most 2048)")
	flags.DurationVar(&f.DrainDelay, "drain-delay", 15*time.Second, "how long to keep answering after SIGTERM")
	flags.StringVar(&f.LogLevel, "log-level", "info", "minimum log level: debug (every review), info (denials, and violations that exceptions and baselines allow), warn or error")
	flags.StringVar(&f.LogFormat, "log-format", "json", "log format: json or text")
}

// anyCluster are the flags of which one gives access to a cluster.
const anyCluster = "--in-cluster or --kubeconfig"

// problems are those of the flags of a command line.
type problems struct {
	// changed reports whether a flag was set.
	changed func(name string) bool
	all     []error
}

func (p *problems) add(format string, args ...any) {
	p.all = append(p.all, fmt.Errorf(format, args...))
}

// needs adds the flags that were set, although what they need is not there.
func (p *problems) needs(has bool, other string, flags ...string) {
	for _, flag := range flags {
		if p.changed(flag) && !has {
			p.add("--%s needs %s", flag, other)
		}
	}
}

// empty adds a flag that was set to nothing.
func (p *problems) empty(flag string, is bool) {
	if p.changed(flag) && is {
		p.add("--%s: must not be empty (hint: omit the flag, or check the variable that its value comes from)", flag)
	}
}

// Validate returns an error with all problems of the flags.
func (f *Options) Validate() error {
	p := &problems{changed: f.changed}
	f.validate(p, f.InCluster || f.Kubeconfig != "")
	f.Operations.validate(p)
	f.Recording.validate(p, f.Config)
	f.Auditing.validate(p, f.CustomResources)
	if f.Kubeconfig != "" && f.InCluster {
		p.add("--kubeconfig and --in-cluster exclude each other")
	}
	switch {
	case f.Config == "" && !f.CustomResources:
		p.add("no configuration: set --config DIR or --custom-resources")
	case f.CustomResources && !f.InCluster && f.Kubeconfig == "":
		p.add("--custom-resources needs " + anyCluster)
	}
	f.checkNames(p)
	for _, address := range []struct{ flag, text, usual string }{{"listen", f.Listen, DefaultListen}, {"ops-listen", f.OpsListen, DefaultOpsListen}} {
		if !isAddress(address.text) {
			p.add("--%s %.100q: must be HOST:PORT, with a port from 0 to 65535 (hint: %s listens on all addresses)", address.flag, address.text, address.usual)
		}
	}
	if _, ok := tlsVersions(f.TLSMinVersion); !ok {
		p.add("--tls-min-version %q: must be 1.3 or 1.2", f.TLSMinVersion)
	}
	if f.OnEmptiedFile != EmptiedFileWarn && f.OnEmptiedFile != EmptiedFileRefuse {
		p.add("--on-emptied-file %.100q: must be %s or %s", f.OnEmptiedFile, EmptiedFileWarn, EmptiedFileRefuse)
	}
	if err := new(slog.LevelVar).UnmarshalText([]byte(f.LogLevel)); err != nil {
		p.add("--log-level %.100q: must be %s", f.LogLevel, debug.DescribeLevels(f.LogLevel))
	}
	if f.LogFormat != "json" && f.LogFormat != "text" {
		p.add("--log-format %q: must be json or text", f.LogFormat)
	}
	if f.changed("max-in-flight-bytes") && f.InFlight <= review.MaxAdmissionBytes {
		p.add("--max-in-flight-bytes %d: must be more than %d, the largest review (hint: omit it for a value that fits the memory limit)", f.InFlight, review.MaxAdmissionBytes)
	}
	if f.changed("max-connections") && f.Connections < minConnections {
		p.add("--max-connections %d: must be at least %d (hint: omit it for a value that fits the memory limit)", f.Connections, minConnections)
	}
	if f.BackChannelLogout < 0 || f.BackChannelLogout > 0 && f.BackChannelLogout < leastLogout {
		p.add("--back-channel-logout %s: must be at least %s, or 0 for off", f.BackChannelLogout, leastLogout)
	}
	if f.DrainDelay < 0 {
		p.add("--drain-delay %s: must not be negative", f.DrainDelay)
	}
	return errors.Join(p.all...)
}

// checkNames adds the problems of flags for custom resources, and of the names of the
// installation and the replica in the cluster.
func (f *Options) checkNames(p *problems) {
	p.needs(f.CustomResources, "--custom-resources", "manage-registration", "namespace", "back-channel-logout")
	p.needs(f.ManageRegistration, "--manage-registration", "leave-compiled")
	p.empty("namespace", f.Namespace == "")
	if f.Namespace != "" && len(validation.IsDNS1123Label(f.Namespace)) > 0 {
		p.add("--namespace %.100q: must be the name of a namespace: lower-case letters, digits and dashes (hint: %s)", f.Namespace, install.DefaultNamespace)
	}
	// The Lease by which a replica reports on custom resources has its name. Other objects
	// hold the name as a string.
	if f.CustomResources && f.replica != "" && len(validation.IsDNS1123Subdomain(f.replica)) > 0 {
		p.add("--replica %.100q: must be the name of a pod: lower-case letters, digits, dashes and dots (hint: omit it to use the host name)", f.replica)
	} else if !utf8.ValidString(f.replica) || strings.ContainsFunc(f.replica, func(r rune) bool { return !strconv.IsPrint(r) }) {
		p.add("--replica %.100q: must consist of printable characters", f.replica)
	}
}

// isAddress reports whether a string has the form of an address to listen at.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}

func tlsVersions(text string) (uint16, bool) {
	switch text {
	case "1.3":
		return tls.VersionTLS13, true
	case "1.2":
		return tls.VersionTLS12, true
	default:
		return 0, false
	}
}
