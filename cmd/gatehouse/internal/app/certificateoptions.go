package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

// CertificateOptions are the flags of serve about certificates: the serving certificate,
// the webhook configurations that trust its CA, and the CAs of client certificates.
type CertificateOptions struct {
	tlsCert, tlsKey string

	selfSigned                      []string
	selfSignedDir, selfSignedSecret string
	caDuration, duration            time.Duration

	certManager       string
	certManagerHosts  []string
	certManagerIssuer string

	registrations []string
	publish       bool
	hold          time.Duration
	replica       string

	clientCA            string
	requireClientForAll bool

	// changed reports whether a flag was set on the command line.
	changed func(name string) bool
}

// shortestLife is the shortest life of a certificate, whose times are whole seconds.
const shortestLife = time.Second

// addFlags adds the flags to a command.
func (f *CertificateOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.changed = flags.Changed
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file of the serving certificate and its chain, in PEM; re-read when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file of the serving certificate's key, in PEM")
	flags.StringSliceVar(&f.selfSigned, "self-signed", nil, "names and addresses for certificates of a CA of its own, instead of --tls-cert and --tls-key")
	flags.StringVar(&f.selfSignedSecret, "self-signed-secret", "", "Secret to keep the CA in, NAMESPACE/NAME, shared by all replicas, with --self-signed")
	flags.StringVar(&f.selfSignedDir, "self-signed-dir", "", "directory to keep the CA in, and a client certificate for the API server, with --self-signed")
	flags.DurationVar(&f.caDuration, "self-signed-ca-duration", rotation.DefaultCALife, "how long a CA is good for, with --self-signed; a new one comes after two thirds of that")
	flags.DurationVar(&f.duration, "self-signed-duration", rotation.DefaultLeafLife, "how long a serving certificate is good for, with --self-signed; it is renewed after two thirds of that")
	flags.StringVar(&f.certManager, "cert-manager", "", "Certificate of cert-manager, NAMESPACE/NAME, to serve what it issues, instead of --tls-cert and --tls-key")
	flags.StringSliceVar(&f.certManagerHosts, "cert-manager-hosts", nil, "names and addresses to make the Certificate for, with --cert-manager; without them it is used as it is")
	flags.StringVar(&f.certManagerIssuer, "cert-manager-issuer", "", "who issues it, [Issuer/|ClusterIssuer/]NAME, with --cert-manager-hosts (default: a CA of its own, which is made)")
	flags.StringSliceVar(&f.registrations, "registration", nil, "webhook configurations that must trust the serving certificate before this is ready: NAME, mutating/NAME or validating/NAME; empty for none (default \""+install.DefaultRegistration+"\" with --self-signed-secret and --cert-manager)")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "write the CA into the caBundle of each --registration, and keep it there (default true with --self-signed-secret)")
	flags.DurationVar(&f.hold, "rotation-hold", rotation.DefaultHold, "how long a new CA is trusted by every --registration before a certificate of it is served")
	flags.StringVar(&f.replica, "replica", "", "name of this replica, unlike that of any other (default: the host name, which is that of the pod)")
	flags.StringVar(&f.clientCA, "client-ca", "", "file of the CAs of client certificates, in PEM; /authenticate answers nobody else (default: with --self-signed-dir, the CA made there)")
	flags.BoolVar(&f.requireClientForAll, "require-client-certificate", false, "make /mutate and /validate too answer only callers with a client certificate of --client-ca")
	for _, name := range []string{
		"self-signed", "self-signed-secret", "self-signed-ca-duration", "self-signed-duration",
		"cert-manager", "cert-manager-hosts", "cert-manager-issuer", "registration", "rotation-hold", "replica",
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // the flags exist, here and below
	}
	_ = cmd.MarkFlagDirname("self-signed-dir")
	for _, name := range []string{"tls-cert", "tls-key", "client-ca"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// Validate returns all problems of the flags.
func (f *CertificateOptions) Validate(cluster bool) []error {
	problems := f.checkSource()
	problems = append(problems, f.checkNeeds(cluster)...)
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if f.changed("self-signed-dir") && f.changed("self-signed-secret") {
		problem("--self-signed-dir and --self-signed-secret exclude each other: the CA is kept in one place")
	}
	if f.changed("publish-ca-bundle") && f.publish {
		switch {
		case f.changed("tls-cert"):
			problem("--publish-ca-bundle does not go with --tls-cert: whoever renews the files knows the CA")
		case f.changed("self-signed") && !f.changed("self-signed-secret") && !f.changed("self-signed-dir"):
			problem("--publish-ca-bundle needs a CA that outlives this process: give --self-signed-secret or --self-signed-dir")
		case len(f.registrationNames()) == 0:
			problem("--publish-ca-bundle needs --registration")
		}
	}
	if _, _, err := install.ParseNamespacedName(f.selfSignedSecret); err != nil {
		problem("--self-signed-secret: %w (hint: %s)", err, install.DefaultCASecret)
	}
	if _, _, err := install.ParseNamespacedName(f.certManager); err != nil {
		problem("--cert-manager: %w (hint: %s/%s)", err, install.DefaultNamespace, install.DefaultRegistration)
	}
	if _, err := f.issuer(); err != nil {
		problem("--cert-manager-issuer: %w", err)
	}
	if _, err := f.parsedRegistrations(); err != nil {
		problems = append(problems, err)
	}
	for _, life := range []struct {
		flag string
		time.Duration
	}{{"--self-signed-duration", f.duration}, {"--self-signed-ca-duration", f.caDuration}} {
		if life.Duration < shortestLife {
			problem("%s %s: must be at least %s", life.flag, life.Duration, shortestLife)
		}
	}
	if f.caDuration < 3*f.duration {
		problem("--self-signed-ca-duration %s: must be at least three times --self-signed-duration, which is %s: a CA signs for the first two thirds of its life", f.caDuration, f.duration)
	}
	if f.hold <= 0 {
		problem("--rotation-hold %s: must be more than 0", f.hold)
	}
	return problems
}

// checkSource reports empty flags, and flags that name no source of the certificate, half of
// one or several.
func (f *CertificateOptions) checkSource() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, text := range []struct {
		flag  string
		empty bool
	}{
		{"tls-cert", f.tlsCert == ""},
		{"tls-key", f.tlsKey == ""},
		{"self-signed", len(f.selfSigned) == 0},
		{"self-signed-secret", f.selfSignedSecret == ""},
		{"self-signed-dir", f.selfSignedDir == ""},
		{"cert-manager", f.certManager == ""},
		{"cert-manager-hosts", len(f.certManagerHosts) == 0},
		{"cert-manager-issuer", f.certManagerIssuer == ""},
		{"replica", f.replica == ""},
		{"client-ca", f.clientCA == ""},
	} {
		if text.empty && f.changed(text.flag) {
			problem("--%s: must not be empty (hint: leave it out, or look where its value comes from)", text.flag)
		}
	}
	files := f.changed("tls-cert") || f.changed("tls-key")
	var sources []string
	if files {
		sources = append(sources, "--tls-cert")
	}
	for _, flag := range []string{"self-signed", "cert-manager"} {
		if f.changed(flag) {
			sources = append(sources, "--"+flag)
		}
	}
	switch {
	case len(sources) == 2:
		problem("%s and %s exclude each other", sources[0], sources[1])
	case len(sources) > 2:
		problem("%s exclude each other", strings.Join(sources, ", "))
	case files && (!f.changed("tls-cert") || !f.changed("tls-key")):
		problem("--tls-cert and --tls-key must both be given")
	case len(sources) == 0:
		problem("no certificate: give --tls-cert and --tls-key, --cert-manager, or --self-signed with the names and addresses under which the API server calls (hint: --self-signed 127.0.0.1)")
	}
	return problems
}

// checkNeeds reports flags that have no effect without others.
func (f *CertificateOptions) checkNeeds(cluster bool) []error {
	const (
		anyCluster = "--in-cluster or --kubeconfig"
		hold       = "--self-signed or --registration"
		shared     = "--self-signed-secret, --self-signed-dir, --cert-manager, --registration or --custom-resources"
	)
	var (
		problems []error
		hasNames = len(f.registrationNames()) > 0
		share    = hasNames || f.changed("self-signed-secret") || f.changed("self-signed-dir") || f.changed("cert-manager")
	)
	for _, needs := range []struct {
		flag  string
		has   bool
		other string
	}{
		{"self-signed-dir", f.changed("self-signed"), "--self-signed"},
		{"self-signed-secret", f.changed("self-signed"), "--self-signed"},
		{"self-signed-secret", cluster, anyCluster},
		{"self-signed-duration", f.changed("self-signed"), "--self-signed"},
		{"self-signed-ca-duration", f.changed("self-signed"), "--self-signed"},
		{"cert-manager", cluster, anyCluster},
		{"registration", cluster || !hasNames, anyCluster},
		{"cert-manager-hosts", f.changed("cert-manager"), "--cert-manager"},
		{"cert-manager-issuer", f.changed("cert-manager-hosts"), "--cert-manager-hosts"},
		{"rotation-hold", hasNames || f.changed("self-signed"), hold},
		{"replica", share || f.changed("custom-resources"), shared},
		{"require-client-certificate", !f.requireClientForAll || f.changed("client-ca") || f.changed("self-signed-dir"), "--client-ca"},
	} {
		if f.changed(needs.flag) && !needs.has {
			problems = append(problems, fmt.Errorf("--%s needs %s", needs.flag, needs.other))
		}
	}
	return problems
}

// registrationNames returns the names of the webhook configurations that must trust the
// serving certificate, whoever writes their bundles.
func (f *CertificateOptions) registrationNames() []string {
	if !f.changed("registration") && (f.selfSignedSecret != "" || f.certManager != "") {
		return []string{install.DefaultRegistration}
	}
	return f.registrations
}

// publishesBundles reports whether to write the CA into these webhook configurations.
func (f *CertificateOptions) publishesBundles() bool {
	if f.changed("publish-ca-bundle") {
		return f.publish
	}
	return f.selfSignedSecret != "" && len(f.registrationNames()) > 0
}

func (f *CertificateOptions) parsedRegistrations() ([]cabundle.Registration, error) {
	var (
		list     []cabundle.Registration
		problems []error
	)
	for _, name := range f.registrationNames() {
		r, err := cabundle.ParseRegistration(name)
		if err != nil {
			problems = append(problems, fmt.Errorf("--registration: %w", err))
		}
		list = append(list, r)
	}
	return list, errors.Join(problems...)
}

// issuer returns the reference to cert-manager's issuer, nil for a CA of its own.
func (f *CertificateOptions) issuer() (*cmmeta.IssuerReference, error) {
	if f.certManagerIssuer == "" {
		return nil, nil //nolint:nilnil // a CA of its own
	}
	kind, name, found := strings.Cut(f.certManagerIssuer, "/")
	if !found {
		kind, name = "Issuer", kind
	}
	if kind != "Issuer" && kind != "ClusterIssuer" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%.100q must be NAME, Issuer/NAME or ClusterIssuer/NAME", f.certManagerIssuer)
	}
	return &cmmeta.IssuerReference{Name: name, Kind: kind, Group: "cert-manager.io"}, nil
}
