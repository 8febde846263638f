package app

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
)

// CertificateOptions are the flags of serve about certificates: the serving certificate,
// the webhook configurations that trust its CA, and the CAs of client certificates.
type CertificateOptions struct {
	tlsCert, tlsKey string

	selfSigned                      []string
	selfSignedDir, selfSignedSecret string

	registrations []string
	publish       bool
	hold          time.Duration
	replica       string

	clientCA            string
	requireClientForAll bool

	// changed reports whether a flag was set on the command line.
	changed func(name string) bool
}

// addFlags adds the flags to a command.
func (f *CertificateOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.changed = flags.Changed
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM file with the serving certificate and its chain; reloaded when it changes")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM file with the key of the serving certificate")
	flags.StringSliceVar(&f.selfSigned, "self-signed", nil, "DNS names and IP addresses for certificates of a self-signed CA; replaces --tls-cert and --tls-key")
	flags.StringVar(&f.selfSignedSecret, "self-signed-secret", "", "Secret that stores the CA for all replicas, NAMESPACE/NAME, with --self-signed")
	flags.StringVar(&f.selfSignedDir, "self-signed-dir", "", "directory that stores the CA, and a client certificate for the API server, with --self-signed")
	flags.StringSliceVar(&f.registrations, "registration", nil, "webhook configurations that must trust the serving certificate before this replica is ready, by name, of either kind; empty for none (default \""+install.DefaultRegistration+"\" with --self-signed-secret)")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "write the CA into the caBundle of each --registration, and restore it after changes (default true with --self-signed-secret)")
	flags.DurationVar(&f.hold, "rotation-hold", certs.DefaultHold, "how long every --registration must trust a new CA before a certificate of it is served")
	flags.StringVar(&f.replica, "replica", "", "unique name of this replica (default: the host name, which is the pod's name)")
	flags.StringVar(&f.clientCA, "client-ca", "", "PEM file with the CAs of client certificates; /authenticate rejects other callers (default with --self-signed-dir: the CA of that directory)")
	flags.BoolVar(&f.requireClientForAll, "require-client-certificate", false, "reject callers of /mutate and /validate that have no client certificate of --client-ca")
}

// validate adds the problems of the flags.
func (f *CertificateOptions) validate(p *problems, cluster bool) {
	f.checkSource(p)
	f.checkNeeds(p, cluster)
	if f.changed("self-signed-dir") && f.changed("self-signed-secret") {
		p.add("--self-signed-dir and --self-signed-secret exclude each other: the CA is stored in one place")
	}
	if f.changed("publish-ca-bundle") && f.publish {
		switch {
		case f.changed("tls-cert"):
			p.add("--publish-ca-bundle and --tls-cert exclude each other: Gatehouse does not know the CA of these files (hint: the program that renews them writes it; for cert-manager, 'gatehouse manifests --certificates cert-manager' prints the annotation)")
		case f.changed("self-signed") && !f.changed("self-signed-secret") && !f.changed("self-signed-dir"):
			p.add("--publish-ca-bundle needs a stored CA: set --self-signed-secret or --self-signed-dir")
		case len(f.registrationNames()) == 0:
			p.add("--publish-ca-bundle needs --registration")
		}
	}
	if _, _, err := install.ParseNamespacedName(f.selfSignedSecret); err != nil {
		p.add("--self-signed-secret: %w (hint: %s)", err, install.DefaultCASecret)
	}
	for _, name := range f.registrationNames() {
		if err := registration.CheckName(name); err != nil {
			p.add("--registration: %w", err)
		}
	}
	if f.hold <= 0 {
		p.add("--rotation-hold %s: must be more than 0", f.hold)
	}
}

// checkSource reports empty flags, and flags that name no source of the certificate, half of
// one or several.
func (f *CertificateOptions) checkSource(p *problems) {
	p.empty("tls-cert", f.tlsCert == "")
	p.empty("tls-key", f.tlsKey == "")
	p.empty("self-signed", len(f.selfSigned) == 0)
	p.empty("self-signed-secret", f.selfSignedSecret == "")
	p.empty("self-signed-dir", f.selfSignedDir == "")
	p.empty("replica", f.replica == "")
	p.empty("client-ca", f.clientCA == "")
	files := f.changed("tls-cert") || f.changed("tls-key")
	switch {
	case files && f.changed("self-signed"):
		p.add("--tls-cert and --self-signed exclude each other")
	case files && (!f.changed("tls-cert") || !f.changed("tls-key")):
		p.add("--tls-cert and --tls-key must both be given")
	case !files && !f.changed("self-signed"):
		p.add("no certificate: set --tls-cert and --tls-key, or --self-signed with the names and addresses that the API server calls (hint: --self-signed 127.0.0.1)")
	}
}

// checkNeeds reports flags that have no effect without others.
func (f *CertificateOptions) checkNeeds(p *problems, cluster bool) {
	hasNames, selfSigned := len(f.registrationNames()) > 0, f.changed("self-signed")
	shared := hasNames || f.changed("self-signed-secret") || f.changed("self-signed-dir") || f.changed("custom-resources") || f.changed("record")
	p.needs(selfSigned, "--self-signed", "self-signed-dir", "self-signed-secret")
	p.needs(cluster, anyCluster, "self-signed-secret")
	p.needs(cluster || !hasNames, anyCluster, "registration")
	p.needs(hasNames || selfSigned, "--self-signed or --registration", "rotation-hold")
	p.needs(shared, "--self-signed-secret, --self-signed-dir, --registration, --custom-resources or --record", "replica")
	p.needs(!f.requireClientForAll || f.changed("client-ca") || f.changed("self-signed-dir"), "--client-ca", "require-client-certificate")
}

// registrationNames returns the names of the webhook configurations that must trust the
// serving certificate, independent of who writes their bundles.
func (f *CertificateOptions) registrationNames() []string {
	if !f.changed("registration") && f.selfSignedSecret != "" {
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
