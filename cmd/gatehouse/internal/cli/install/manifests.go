// Package install has the commands that install and remove Gatehouse: manifests and uninstall.
package install

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// manifestsFlags are the flags of manifests.
type manifestsFlags struct {
	url, service                  string
	caFile, certificates          string
	config                        string
	name, namespace               string
	excludeNamespaces             []string
	authentication                bool
	admissionConfiguration        bool
	noMatchConditions             bool
	customResources, crds         bool
	countPods                     bool
	validate, validateOpen, parts []string
	rights, publish               bool
	serviceAccount                string
	clientCert, clientKey, output string
	// purpose is the value of --for, and kubeconfigPath the path of the kubeconfig on the
	// hosts of kube-apiserver.
	purpose, kubeconfigPath string
	purposeGiven            bool
}

// The values of --for: the files for kube-apiserver, and three ways to configure them.
const (
	// forConfiguration is the AdmissionConfiguration, which names the kubeconfig.
	forConfiguration = "configuration"

	forKubeconfig   = "kubeconfig"
	forFlags        = "flags"
	forKubeadm      = "kubeadm"
	forKubeadmPatch = "kubeadm-patch"
)

// NewManifestsCommand returns the command "gatehouse manifests".
func NewManifestsCommand(s cli.Streams) *cobra.Command {
	var f manifestsFlags
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print webhook registrations, rights and API server settings",
		Long: `Manifests prints the webhook configurations that register Gatehouse for
admission, for kubectl apply. With --config only what the documents act on is
registered; run it again when they are about something new. Match conditions of
policies that cannot fail become a match condition of the webhook, so that what
they leave out is not sent: run it again when one of them changes too, or leave
them to Gatehouse with --no-match-conditions.

Certificates come from --ca-file, which says whom to trust, or from --certificates:
with self-signed Gatehouse has a CA of its own, keeps it in a Secret and writes it
into the webhook configurations itself; with cert-manager that does both, and what
it needs is printed too. What Gatehouse may do in the cluster then, and as which
ServiceAccount, is printed with self-signed, and with --rights for cert-manager:
roles for these objects and nothing else, with the reason of each verb, and the
command line of serve that they are for. Where Gatehouse writes into its webhook
configurations, a ValidatingAdmissionPolicy is printed too, with which the API
server lets it change caBundle and nothing else; --part rights,certificates,registration
leaves it out.

With --custom-resources policies and profiles come and go by kubectl apply while
the registration stays: pods and workloads are sent, what --validate names besides,
and Gatehouse's custom resources themselves, so that one that cannot be used is
refused. A policy about something that is not sent says so in its status. The
rights for it are printed too. With --crds the CustomResourceDefinitions are printed
and nothing else; apply them first.

With --authentication it prints the kubeconfig for kube-apiserver's
--authentication-token-webhook-config-file instead, which is a file on the hosts
of kube-apiserver and not an object of the API. With --for it prints what makes
kube-apiserver read that file: its flags, the part of kubeadm's configuration for
a new or a running cluster, or a patch for kubeadm --patches, for one node alone.
The files are on the hosts of kube-apiserver; none of them is read here.

With --admission-configuration it prints the AdmissionConfiguration by which
kube-apiserver presents a client certificate to the webhooks of Gatehouse, for serve
--require-client-certificate, and to be served first while other clients flood Gatehouse.
--for kubeconfig prints the second file, which the first one names; --for flags,
kubeadm and kubeadm-patch print what makes kube-apiserver read them. Managed control planes do not offer this.

No policy is asked about anything in kube-system, kube-node-lease and Gatehouse's
own namespace, nor about nodes, certificate signing requests, leases, events,
reviews and Gatehouse's own documents: a cluster can come up without it. What a
member of the group gatehouse.dev:break-glass does is not sent either, in an
emergency: kubectl --as-group.

Exit codes: 0 printed, 2 bad usage, or a configuration or CA that cannot be used.`,
		Example: `  # in the cluster, with a CA of its own
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --config DIR | kubectl apply -f -

  # in the cluster, with certificates from cert-manager, in a mounted Secret; with --rights, read by the API
  gatehouse manifests --service gatehouse-system/gatehouse --certificates cert-manager --config DIR | kubectl apply -f -

  # in the cluster, with custom resources, for policies about Services too
  gatehouse manifests --crds | kubectl apply --server-side -f -
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --custom-resources \
    --validate services | kubectl apply -f -

  # outside of the cluster
  gatehouse manifests --url https://192.0.2.10:9443 --ca-file certs/ca.crt --config DIR | kubectl apply -f -

  # token reviews
  gatehouse manifests --authentication --url https://192.0.2.10:9443 --ca-file /etc/kubernetes/gatehouse/ca.crt \
    --client-cert /etc/kubernetes/gatehouse/client.crt --client-key /etc/kubernetes/gatehouse/client.key

  # the same command with this at its end: what to tell kubeadm
  gatehouse manifests --authentication ... --for kubeadm

  # a client certificate for admission: both files, and what to tell kubeadm
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse > admission.yaml
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse --for kubeconfig > admission.kubeconfig.yaml
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse --for kubeadm`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.crds {
				if err := f.checkCRDs(cmd); err != nil {
					return err
				}
				return printCRDs(s.Out, f.output)
			}
			f.purposeGiven = cmd.Flags().Changed("for")
			text, notes, err := f.run()
			if err != nil {
				return err
			}
			for _, note := range notes {
				if _, err := fmt.Fprintf(s.Err, "gatehouse: note: %s\n", note); err != nil {
					return err
				}
			}
			_, err = s.Out.Write(text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "address of Gatehouse, https://HOST:PORT")
	flags.StringVar(&f.service, "service", "", "Service of Gatehouse, NAMESPACE/NAME[:PORT]; the port is 443 without")
	flags.StringVar(&f.caFile, "ca-file", "", "file of the CAs that the serving certificate is verified with, in PEM")
	flags.StringVar(&f.certificates, "certificates", "", "who issues the serving certificate and fills in its CA, instead of --ca-file: "+orText(certificateSources()))
	flags.BoolVar(&f.rights, "rights", false, "print the ServiceAccount of Gatehouse and its rights too, to read the certificate of cert-manager by the API; always with --certificates self-signed")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "have Gatehouse fill in the CA of what cert-manager issues, and not cert-manager's cainjector; always with --certificates self-signed")
	flags.StringVar(&f.serviceAccount, "service-account", "", "ServiceAccount that Gatehouse runs as and that exists, with rights (default: one that has the name of the objects, which is printed)")
	cli.AddConfigFlag(cmd, &f.config, "directory of documents; without it pods and workloads are validated", "authentication", "admission-configuration", "crds")
	flags.StringVar(&f.name, "name", "gatehouse", "name of the objects")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace that Gatehouse runs in (default: that of --service, else gatehouse-system)")
	flags.StringSliceVar(&f.excludeNamespaces, "exclude-namespace", nil, "further namespaces that nothing is sent from, such as those of the network and storage drivers")
	flags.BoolVar(&f.customResources, "custom-resources", false, "for Gatehouse with --custom-resources: register what checks them, and whatever policies and profiles come, and print the rights that it takes")
	flags.BoolVar(&f.countPods, "count-pods", false, "print the right to list pods in all namespaces too, for serve --count-pods-every, with --custom-resources")
	flags.BoolVar(&f.crds, "crds", false, "print the CustomResourceDefinitions of this version instead")
	flags.StringArrayVar(&f.validate, "validate", nil, "have more validated than the configuration tells, or than pods and workloads: "+validateText+"; refused while Gatehouse is away")
	flags.StringArrayVar(&f.validateOpen, "validate-open", nil, "the same, but let pass while Gatehouse is away")
	flags.StringSliceVar(&f.parts, "part", nil, "print nothing but this part: "+orText(partNames())+" (default: all)")
	flags.BoolVar(&f.noMatchConditions, "no-match-conditions", false, "leave all match conditions of policies to Gatehouse")
	flags.BoolVar(&f.authentication, "authentication", false, "print the kubeconfig for token reviews instead, or what --for says")
	flags.BoolVar(&f.admissionConfiguration, "admission-configuration", false, "print the AdmissionConfiguration by which kube-apiserver presents a client certificate to the webhooks instead, or what --for says")
	flags.StringVar(&f.purpose, "for", "", "what to print with --authentication or --admission-configuration: "+orText(purposes())+" (default kubeconfig with --authentication, which has no configuration, and configuration with --admission-configuration)")
	flags.StringVar(&f.kubeconfigPath, "kubeconfig-path", "", "path of the kubeconfig on the hosts of kube-apiserver (default /etc/kubernetes/NAME/kubeconfig.yaml, or admission.kubeconfig.yaml there with --admission-configuration, which has admission.yaml beside it)")
	flags.StringVar(&f.clientCert, "client-cert", "", "path of the client certificate on the hosts of kube-apiserver (default with --admission-configuration /etc/kubernetes/NAME/client.crt)")
	flags.StringVar(&f.clientKey, "client-key", "", "path of its key on the hosts of kube-apiserver (default with --admission-configuration /etc/kubernetes/NAME/client.key)")
	cli.AddOutputFlag(cmd, &f.output, "yaml", "json")
	_ = cmd.MarkFlagFilename("ca-file") // the flags exist, here and below
	// The client certificate and the kubeconfig are on other hosts.
	for _, name := range []string{
		"url", "service", "service-account", "name", "namespace", "exclude-namespace", "validate", "validate-open", "kubeconfig-path", "client-cert", "client-key",
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(purposes(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("part", cobra.FixedCompletions(partNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("certificates", cobra.FixedCompletions(certificateSources(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// The values of --certificates.
const (
	certManager = "cert-manager"
	selfSigned  = "self-signed"
)

// certificateSources returns the values of --certificates.
func certificateSources() []string { return []string{certManager, selfSigned} }

// purposes returns the values of --for.
func purposes() []string {
	return []string{forConfiguration, forKubeconfig, forFlags, forKubeadm, forKubeadmPatch}
}

// notOneOf returns the error of a flag whose value is none of those that are allowed.
func notOneOf(flag, value string, allowed []string) string {
	text := fmt.Sprintf("--%s %.100q: must be %s", flag, value, orText(allowed))
	if hint := diagnostic.DidYouMean(value, allowed...); hint != "" {
		text += " (hint: " + hint + ")"
	}
	return text
}

func orText(all []string) string {
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// run returns the documents as text, and notes.
func (f *manifestsFlags) run() ([]byte, []string, error) {
	server, err := f.check()
	if err != nil {
		return nil, nil, err
	}
	if f.onHosts() {
		return f.forHosts(server)
	}
	o := registration.Options{
		Name: f.name, Namespace: f.namespace, ExcludeNamespaces: f.excludeNamespaces, Server: server,
		NoMatchConditions: f.noMatchConditions,
		CustomResources:   f.customResources, CountPods: f.countPods,
		SelfSigned: f.certificates == selfSigned, Rights: f.rights, PublishCABundle: f.publish, ServiceAccount: f.serviceAccount,
	}
	switch {
	case o.Namespace != "":
	case server.Namespace != "":
		o.Namespace = server.Namespace
	default:
		o.Namespace = "gatehouse-system"
	}
	if o.Validate, o.ValidateOpen, err = f.validated(); err != nil {
		return nil, nil, err
	}
	if f.caFile != "" {
		if o.CABundle, err = readCABundle(f.caFile); err != nil {
			return nil, nil, fmt.Errorf("--ca-file %s: %w", f.caFile, err)
		}
	}
	if f.config != "" {
		if o.Spec, err = loadSpec(f.config); err != nil {
			return nil, nil, fmt.Errorf("--config %s cannot be used (hint: see gatehouse lint):\n%w", f.config, active.WithPaths(f.config, err))
		}
	}
	admission, err := registration.ForAdmission(o)
	if err != nil {
		return nil, nil, err
	}
	header := fmt.Sprintf(`Made by "gatehouse manifests". If Gatehouse keeps you from repairing it:
kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration %s`, f.name)
	if admission.Serve != "" {
		header += fmt.Sprintf("\n\nThis is for Gatehouse in the namespace %q, which must be there first (kubectl create namespace %s), started as\nfollows, with flags besides as you like:\n%s", o.Namespace, o.Namespace, admission.Serve)
	}
	documents := registration.Only(admission.Documents, f.wantedParts()...)
	if len(documents) == 0 {
		return nil, nil, fmt.Errorf("--part %s: there is nothing of it with these flags", strings.Join(f.parts, ","))
	}
	var notes []string
	if slices.Contains(f.wantedParts(), registration.PartRegistration) {
		notes = slices.Concat(admission.Notes, unknownResources(slices.Concat(o.Validate, o.ValidateOpen)))
	}
	text, err := f.render(header, documents)
	return text, notes, err
}

// onHosts reports whether files for the hosts of kube-apiserver are printed, and not
// objects of its API.
func (f *manifestsFlags) onHosts() bool { return f.authentication || f.admissionConfiguration }

// forHosts returns the files for the hosts of kube-apiserver, and notes.
func (f *manifestsFlags) forHosts(server registration.Server) ([]byte, []string, error) {
	o := registration.KubeconfigOptions{
		Admission: f.admissionConfiguration,
		Name:      f.name, Server: server, CAFile: f.caFile, ClientCert: f.clientCert, ClientKey: f.clientKey, Path: f.kubeconfigPath,
	}
	if o.Admission {
		o.ClientCert = cmp.Or(o.ClientCert, "/etc/kubernetes/"+f.name+"/client.crt")
		o.ClientKey = cmp.Or(o.ClientKey, "/etc/kubernetes/"+f.name+"/client.key")
	}
	var (
		document registration.Document
		notes    []string
		err      error
	)
	switch f.purpose {
	case forFlags:
		text, err := registration.Flags(o, f.output == "json")
		return text, o.Notes(), err
	case forKubeadm:
		document, notes, err = registration.Kubeadm(o)
	case forKubeadmPatch:
		document, notes, err = registration.KubeadmPatch(o)
	case forConfiguration:
		document, err = registration.AdmissionConfiguration(o)
	default:
		document, err = registration.Kubeconfig(o)
		notes = o.Notes()
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := f.render("", []registration.Document{document})
	return text, notes, err
}

// check returns all errors of the flags.
func (f *manifestsFlags) check() (registration.Server, error) {
	var (
		problems []error
		server   registration.Server
		err      error
	)
	problem := func(text string) { problems = append(problems, errors.New(text)) }
	switch {
	case f.url != "" && f.service != "":
		problem("--url and --service exclude each other")
	case f.url != "":
		if server, err = registration.ParseURL(f.url); err != nil {
			problems = append(problems, fmt.Errorf("--url: %w", err))
		}
	case f.service != "" && f.authentication:
		problem("--service does not go with --authentication: token reviews need a URL, because kube-apiserver does not resolve the names of Services there (hint: --url)")
	case f.service != "":
		if server, err = registration.ParseService(f.service); err != nil {
			problems = append(problems, fmt.Errorf("--service: %w", err))
		}
	case f.authentication:
		problem("there is no address of Gatehouse: give --url")
	default:
		problem("there is no address of Gatehouse: give --url or --service")
	}
	switch {
	case f.certificates != "" && !slices.Contains(certificateSources(), f.certificates):
		problem(notOneOf("certificates", f.certificates, certificateSources()))
	case f.certificates != "" && f.caFile != "":
		problem("--ca-file and --certificates exclude each other")
	case f.certificates != "" && f.authentication:
		problem("--certificates does not go with --authentication: kube-apiserver needs the CA in a file on its host (hint: --ca-file)")
	case f.admissionConfiguration && (f.certificates != "" || f.caFile != ""):
		problem("--ca-file and --certificates are not for --admission-configuration: the CA is in the webhook configurations")
	case f.admissionConfiguration:
	case f.authentication && f.caFile == "":
		problem("there is no CA: give --ca-file, the path of the CAs of the serving certificate on the hosts of kube-apiserver")
	case f.certificates == "" && f.caFile == "":
		problem("there is no CA: give --ca-file, or --certificates " + orText(certificateSources()))
	}
	f.checkRights(problem)
	f.checkContents(problem)
	f.checkHosts(problem)
	if f.noMatchConditions && f.config == "" {
		problem("--no-match-conditions is for --config: without it there are none")
	}
	if f.onHosts() && f.config != "" {
		problem("--config is not for " + f.hostsFlag() + ", which does not depend on it")
	}
	if f.output != "yaml" && f.output != "json" {
		problems = append(problems, cli.OutputError(f.output, "yaml", "json"))
	}
	return server, errors.Join(problems...)
}

// hostsFlag returns the flag that makes onHosts true.
func (f *manifestsFlags) hostsFlag() string {
	if f.admissionConfiguration {
		return "--admission-configuration"
	}
	return "--authentication"
}

// checkHosts checks the flags for files on the hosts of kube-apiserver, and sets the
// default of --for.
func (f *manifestsFlags) checkHosts(problem func(string)) {
	if f.authentication && f.admissionConfiguration {
		problem("--authentication and --admission-configuration exclude each other")
	}
	if f.authentication && (f.clientCert == "" || f.clientKey == "") {
		problem("token reviews need the paths of a client certificate and its key on the hosts of kube-apiserver, because Gatehouse answers nobody else: give --client-cert and --client-key")
	}
	if !f.onHosts() && (f.clientCert != "" || f.clientKey != "") {
		problem("--client-cert and --client-key are for --authentication and --admission-configuration")
	}
	if !f.onHosts() && (f.purposeGiven || f.kubeconfigPath != "") {
		problem("--for and --kubeconfig-path are for --authentication and --admission-configuration")
	}
	allowed := purposes()
	if !f.admissionConfiguration {
		allowed = allowed[1:]
	}
	if !f.purposeGiven {
		f.purpose = allowed[0]
	}
	if !slices.Contains(allowed, f.purpose) {
		problem(notOneOf("for", f.purpose, allowed))
	}
}

// checkRights checks the flags for RBAC.
func (f *manifestsFlags) checkRights(problem func(string)) {
	for _, flag := range []struct {
		given bool
		name  string
	}{{f.rights, "--rights"}, {f.publish, "--publish-ca-bundle"}} {
		switch {
		case flag.given && f.onHosts():
			problem(flag.name + " is not for " + f.hostsFlag() + ": files on the hosts of kube-apiserver need no rights in the cluster")
		case flag.given && f.certificates == "":
			problem(flag.name + " needs --certificates: with --ca-file somebody else renews the certificate and says whom to trust")
		}
	}
	if f.countPods && !f.customResources {
		problem("--count-pods needs --custom-resources: it is about the status of SidecarProfiles")
	}
	if f.serviceAccount != "" && !f.rights && !f.publish && !f.customResources && f.certificates != selfSigned {
		problem("--service-account needs --rights, --publish-ca-bundle, --custom-resources or --certificates " + selfSigned + ": without, no rights are printed")
	}
}

func (f *manifestsFlags) render(header string, documents []registration.Document) ([]byte, error) {
	if f.output == "json" {
		return registration.JSON(documents)
	}
	return registration.YAML(header, documents)
}

// readCABundle reads a CA bundle, of 1 MiB at most, as the API server does.
func readCABundle(path string) (bundle []byte, err error) {
	const most = 1 << 20
	file, err := os.Open(path) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > most:
		return nil, fmt.Errorf("is larger than %d MiB", most>>20)
	}
	return registration.ParseCABundle(text, time.Now())
}

// loadSpec returns the spec of a valid configuration.
func loadSpec(dir string) (*webhooks.Spec, error) {
	c, _, found := active.Load(dir)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return &webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn}, nil
}
