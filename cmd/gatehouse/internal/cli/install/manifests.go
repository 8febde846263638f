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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
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
	static                        bool
	noMatchConditions             bool
	customResources, crds         bool
	countPods, audit              bool
	cluster                       cli.ClusterFlags
	validate, validateOpen, parts []string
	recordOnly                    []string
	recordRatio                   float64
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
		Long: `Manifests prints the webhook configurations that register Gatehouse for admission,
for kubectl apply. With --config it registers only the resources that the documents
match: run it again when they match others. Match conditions of policies that cannot
fail become match conditions of the webhook, so the API server does not send what they
exclude: run it again when one of them changes, or use --no-match-conditions.

Certificates: give --ca-file, the CA of the serving certificate, or --certificates.
With --certificates self-signed, Gatehouse has its own CA in a Secret and writes it into
the webhook configurations. With --certificates cert-manager, cert-manager does both,
and the objects that it needs are printed too. With self-signed, and with --rights for
cert-manager, manifests also prints the ServiceAccount and roles of Gatehouse, with the
reason for each permission, and the command line of serve. Where Gatehouse writes into
its webhook configurations, it also prints a ValidatingAdmissionPolicy that limits
these writes to caBundle; --part rights,certificates,registration omits it.

With --custom-resources you change policies and profiles with kubectl apply, and the
registration stays: the API server sends pods, workloads, the resources of --validate,
and Gatehouse's custom resources, so that invalid ones are rejected. The status of a
policy says if the API server does not send what it matches. With --crds only the
CustomResourceDefinitions are printed; apply them first.

With --record-only the API server also sends resources that no policy matches, so that
serve --record records them. Gatehouse allows these requests, and they are not delayed
while it is down. --record-sample-ratio is the share of objects that are sent, with all
requests about them.

With --audit only the rights for serve --audit-every are printed: to list exactly the
resources that policies and profiles match, and to write reports. The policies are those
that are active in the cluster of the kubeconfig, those of --config, or with both a
directory and --context, all of them. Without a cluster, what policies match by wildcards
is left out.

With --authentication it prints the kubeconfig for --authentication-token-webhook-config-file
of kube-apiserver, a file on the control plane nodes. With --for it prints what makes
kube-apiserver read that file: its flags, the kubeadm configuration of a new or a
running cluster, or a patch for kubeadm --patches, for one node. It reads none of these
files.

With --admission-configuration it prints the AdmissionConfiguration with which
kube-apiserver presents a client certificate to Gatehouse: for serve
--require-client-certificate, and to be served first during a flood of requests.
--for kubeconfig prints the second file, which the first one refers to; --for flags,
kubeadm and kubeadm-patch print what makes kube-apiserver read them. Managed control
planes do not offer this.

With --static it prints the webhook configurations as files for kube-apiserver 1.36 and
later (KEP-5793): they apply from its start, and no client can change or delete them.
They need --url and --ca-file. --for mutating and --for validating print one file each,
for separate directories, and --for configuration the AdmissionConfiguration that names
these.

The API server sends nothing about kube-system, kube-node-lease, Gatehouse's own
namespace, nodes, certificate signing requests, leases, events, reviews and Gatehouse's
own documents, so that a cluster can start without Gatehouse. In an emergency it also
sends no request of the group gatehouse.dev:break-glass: kubectl --as-group.

Exit codes: 0 printed, 2 bad usage, or an invalid configuration or CA.`,
		Example: `  # in the cluster, with its own CA
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --config DIR | kubectl apply -f -

  # in the cluster, with certificates from cert-manager in a mounted Secret (with --rights, read from the API)
  gatehouse manifests --service gatehouse-system/gatehouse --certificates cert-manager --config DIR | kubectl apply -f -

  # in the cluster, with custom resources, and for policies about Services
  gatehouse manifests --crds | kubectl apply --server-side -f -
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --custom-resources \
    --validate services | kubectl apply -f -

  # record a tenth of all Services and ConfigMaps too, before there is a policy for them
  gatehouse manifests --service gatehouse-system/gatehouse --certificates self-signed --config DIR \
    --record-only services,configmaps | kubectl apply -f -

  # the rights of audits, for the policies that are active
  gatehouse manifests --audit | kubectl apply -f -

  # outside of the cluster
  gatehouse manifests --url https://192.0.2.10:9443 --ca-file certs/ca.crt --config DIR | kubectl apply -f -

  # token reviews
  gatehouse manifests --authentication --url https://192.0.2.10:9443 --ca-file /etc/kubernetes/gatehouse/ca.crt \
    --client-cert /etc/kubernetes/gatehouse/client.crt --client-key /etc/kubernetes/gatehouse/client.key

  # the configuration of kubeadm for the same files
  gatehouse manifests --authentication ... --for kubeadm

  # a client certificate for admission: both files, and the configuration of kubeadm
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse > admission.yaml
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse --for kubeconfig > admission.kubeconfig.yaml
  gatehouse manifests --admission-configuration --service gatehouse-system/gatehouse --for kubeadm

  # files for kube-apiserver in place of objects of its API
  gatehouse manifests --static --url https://192.0.2.10:9443 --ca-file certs/ca.crt --for mutating > mutating/gatehouse.yaml
  gatehouse manifests --static --url https://192.0.2.10:9443 --ca-file certs/ca.crt --for validating > validating/gatehouse.yaml
  gatehouse manifests --static --url https://192.0.2.10:9443 --ca-file certs/ca.crt --for configuration > admission.yaml`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.crds {
				if err := f.checkCRDs(cmd); err != nil {
					return err
				}
				return printCRDs(s.Out, f.output)
			}
			if f.audit {
				if err := f.checkAudit(cmd); err != nil {
					return err
				}
				text, err := f.auditRights(cmd.Context(), s.Err)
				if err != nil {
					return err
				}
				_, err = s.Out.Write(text)
				return err
			}
			if f.cluster.Given() {
				return errors.New("--in-cluster, --kubeconfig and --context are for --audit (hint: --kubeconfig-path is the path of the kubeconfig on the hosts of kube-apiserver)")
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
	flags.StringVar(&f.service, "service", "", "Service of Gatehouse, NAMESPACE/NAME[:PORT] (default port 443)")
	flags.StringVar(&f.caFile, "ca-file", "", "file of the CAs that verify the serving certificate, in PEM")
	flags.StringVar(&f.certificates, "certificates", "", "issuer of the serving certificate, which also fills in its CA, in place of --ca-file: "+orText(certificateSources()))
	flags.BoolVar(&f.rights, "rights", false, "also print the ServiceAccount of Gatehouse and its roles, to read the certificate of cert-manager from the API (always with --certificates self-signed)")
	flags.BoolVar(&f.publish, "publish-ca-bundle", false, "let Gatehouse fill in the CA of cert-manager, in place of the cainjector (always with --certificates self-signed)")
	flags.StringVar(&f.serviceAccount, "service-account", "", "existing ServiceAccount of Gatehouse (default: one with the name of the objects, which is printed)")
	cli.AddConfigFlag(cmd, &f.config, "directory of documents (without it, pods and workloads are validated)", "authentication", "admission-configuration", "crds", "audit")
	cli.NoteConfigVariable(cmd)
	flags.StringVar(&f.name, "name", "gatehouse", "name of the objects")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of Gatehouse (default: that of --service, else gatehouse-system)")
	flags.StringSliceVar(&f.excludeNamespaces, "exclude-namespace", nil, "more namespaces from which nothing is sent, such as those of network and storage drivers")
	flags.BoolVar(&f.customResources, "custom-resources", false, "for serve --custom-resources: register Gatehouse for its custom resources and for any policy and profile, and print the roles for that")
	flags.BoolVar(&f.countPods, "count-pods", false, "also print the permission to list pods in all namespaces, for serve --count-pods-every; needs --custom-resources")
	flags.BoolVar(&f.audit, "audit", false, "print only the rights that serve --audit-every needs: to what the active policies of the cluster match, or those of --config, and to reports")
	f.cluster.Add(cmd)
	flags.BoolVar(&f.crds, "crds", false, "print only the CustomResourceDefinitions of this version")
	flags.StringArrayVar(&f.validate, "validate", nil, "more resources to validate: "+validateText+"; rejected while Gatehouse is unavailable")
	flags.StringArrayVar(&f.validateOpen, "validate-open", nil, "as --validate, but allowed while Gatehouse is unavailable")
	flags.StringArrayVar(&f.recordOnly, "record-only", nil, "resources to send to be recorded, as for --validate, as far as no policy matches them; allowed while Gatehouse is unavailable; '*.*' is all but Secrets")
	flags.Float64Var(&f.recordRatio, "record-sample-ratio", defaultRecordRatio, "share of the objects of --record-only that are sent, above 0 and up to 1")
	flags.StringSliceVar(&f.parts, "part", nil, "print only this part: "+orText(partNames())+" (default: all)")
	flags.BoolVar(&f.noMatchConditions, "no-match-conditions", false, "put no match conditions of policies into the webhooks")
	flags.BoolVar(&f.authentication, "authentication", false, "print the kubeconfig for token reviews, or the output of --for")
	flags.BoolVar(&f.admissionConfiguration, "admission-configuration", false, "print the AdmissionConfiguration with which kube-apiserver presents a client certificate to the webhooks, or the output of --for")
	flags.BoolVar(&f.static, "static", false, "print the webhook configurations as files that kube-apiserver 1.36 and later reads itself, or the output of --for")
	flags.StringVar(&f.purpose, "for", "", "what to print with --authentication or --admission-configuration: "+orText(purposes())+" (default kubeconfig with --authentication, which has no configuration, and configuration with --admission-configuration); with --static: "+orText(staticPurposes())+" (default mutating and validating)")
	flags.StringVar(&f.kubeconfigPath, "kubeconfig-path", "", "path of the kubeconfig on the hosts of kube-apiserver (default /etc/kubernetes/NAME/kubeconfig.yaml, or admission.kubeconfig.yaml there with --admission-configuration, which has admission.yaml beside it)")
	flags.StringVar(&f.clientCert, "client-cert", "", "path of the client certificate on the hosts of kube-apiserver (default with --admission-configuration /etc/kubernetes/NAME/client.crt)")
	flags.StringVar(&f.clientKey, "client-key", "", "path of its key on the hosts of kube-apiserver (default with --admission-configuration /etc/kubernetes/NAME/client.key)")
	cli.AddOutputFlag(cmd, &f.output, "yaml", "json")
	_ = cmd.MarkFlagFilename("ca-file") // the flags exist, here and below
	// The client certificate and the kubeconfig are on other hosts.
	for _, name := range []string{
		"url", "service", "service-account", "name", "namespace", "exclude-namespace", "validate", "validate-open", "record-only", "record-sample-ratio", "kubeconfig-path", "client-cert", "client-key",
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(slices.Concat(purposes(), staticPurposes()[:2]), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("part", cobra.FixedCompletions(partNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("certificates", cobra.FixedCompletions(certificateSources(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// defaultRecordRatio is the default of --record-sample-ratio: enough to see who would be hit, at
// a tenth of the calls.
const defaultRecordRatio = 0.1

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
		NoMatchConditions: f.noMatchConditions, RecordShare: f.recordRatio,
		CustomResources: f.customResources, CountPods: f.countPods,
		Static: f.static, SelfSigned: f.certificates == selfSigned, Rights: f.rights, PublishCABundle: f.publish, ServiceAccount: f.serviceAccount,
	}
	switch {
	case o.Namespace != "":
	case server.Namespace != "":
		o.Namespace = server.Namespace
	default:
		o.Namespace = "gatehouse-system"
	}
	if o.Validate, o.ValidateOpen, o.RecordOnly, err = f.validated(); err != nil {
		return nil, nil, err
	}
	if f.caFile != "" {
		if o.CABundle, err = readCABundle(f.caFile); err != nil {
			return nil, nil, fmt.Errorf("--ca-file %s: %w", f.caFile, err)
		}
	}
	if f.config != "" {
		if o.Spec, err = loadSpec(f.config); err != nil {
			return nil, nil, fmt.Errorf("--config %s: invalid configuration (hint: see gatehouse lint):\n%w", f.config, config.WithPaths(f.config, err))
		}
	}
	admission, err := registration.ForAdmission(o)
	if err != nil {
		return nil, nil, err
	}
	unknown := unknownResources(slices.Concat(o.Validate, o.ValidateOpen, o.RecordOnly))
	if f.static {
		text, notes, err := f.staticText(o, admission.Documents)
		return text, slices.Concat(admission.Notes, unknown, notes), err
	}
	header := fmt.Sprintf(`Made by "gatehouse manifests". If Gatehouse keeps you from repairing it:
kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration %s`, f.name)
	if admission.Serve != "" {
		header += fmt.Sprintf("\n\nThis is for Gatehouse in the namespace %q, which must be there first (kubectl create namespace %s), started as\nfollows, with flags besides as you like:\n%s", o.Namespace, o.Namespace, admission.Serve)
	}
	documents := registration.Only(admission.Documents, f.wantedParts()...)
	if len(documents) == 0 {
		return nil, nil, fmt.Errorf("--part %s: nothing to print with these flags", strings.Join(f.parts, ","))
	}
	var notes []string
	if slices.Contains(f.wantedParts(), registration.PartRegistration) {
		notes = slices.Concat(admission.Notes, unknown)
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
		problem("--service and --authentication exclude each other: kube-apiserver does not resolve the names of Services for token reviews (hint: --url)")
	case f.service != "":
		if server, err = registration.ParseService(f.service); err != nil {
			problems = append(problems, fmt.Errorf("--service: %w", err))
		}
	case f.authentication:
		problem("the address of Gatehouse is missing (hint: --url https://HOST:PORT)")
	default:
		problem("the address of Gatehouse is missing (hint: --service NAMESPACE/NAME, or --url https://HOST:PORT)")
	}
	switch {
	case f.certificates != "" && !slices.Contains(certificateSources(), f.certificates):
		problem(notOneOf("certificates", f.certificates, certificateSources()))
	case f.certificates != "" && f.caFile != "":
		problem("--ca-file and --certificates exclude each other")
	case f.certificates != "" && f.authentication:
		problem("--certificates and --authentication exclude each other: kube-apiserver reads the CA from a file on its host (hint: --ca-file)")
	case f.admissionConfiguration && (f.certificates != "" || f.caFile != ""):
		problem("--ca-file and --certificates are not for --admission-configuration: the CA is in the webhook configurations")
	case f.admissionConfiguration:
	case f.authentication && f.caFile == "":
		problem("the CA is missing (hint: --ca-file, the path of the CAs of the serving certificate on the hosts of kube-apiserver)")
	case f.certificates == "" && f.caFile == "":
		problem("the CA is missing (hint: --ca-file, or --certificates " + orText(certificateSources()) + ")")
	}
	f.checkStatic(problem)
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
	if !f.onHosts() && (f.purposeGiven && !f.static || f.kubeconfigPath != "") {
		problem("--for is for --authentication, --admission-configuration and --static, and --kubeconfig-path for the first two")
	}
	allowed := purposes()
	switch {
	case f.static:
		allowed = staticPurposes()
		if !f.purposeGiven {
			return
		}
	case !f.admissionConfiguration:
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
	c, _, found := config.CompileDir(dir)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return &webhooks.Spec{Sidecar: c.Sidecar, Policy: c.Policy, Authn: c.Authn}, nil
}
