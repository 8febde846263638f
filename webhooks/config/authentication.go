package config

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/ldapconfig"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// Directory is an LDAP service as it is configured.
type Directory struct {
	authn.NamedDirectory
	// BindPassword is the password of the account that searches.
	BindPassword string
}

// GroupSource is a group source of an issuer as it is configured.
type GroupSource struct {
	// Issuer is the URL of the issuer.
	Issuer string
	Config *v1alpha1.GroupSource
	// Prefix is the groupsPrefix, by default that of the directory of an LDAP source.
	Prefix string
	// Secret is the secret or the token, and Certificate and Key are a client certificate in
	// PEM, of those that are configured.
	Secret, Certificate, Key []byte
}

// authenticate reads our AuthenticationConfiguration and the files that it names.
func (o *object) authenticate() {
	var v v1alpha1.AuthenticationConfiguration
	if !o.decodeInto(&v) {
		return
	}
	c := o.config
	c.Authn.Configuration = &authn.Configuration{Source: o.source, AuthenticationConfiguration: v}
	for i := range v.Directories {
		config := &c.Authn.Configuration.Directories[i]
		d := Directory{NamedDirectory: authn.NamedDirectory{Source: o.source, Field: fmt.Sprintf("directories[%d]", i), Config: config}}
		for _, f := range ldapconfig.Check(config) {
			f.Source, f.Object, f.Field = o.source, o.label, joinField(d.Field, f.Field)
			if f.Severity == diagnostic.Warning {
				o.warnings = append(o.warnings, f)
			} else {
				o.found = append(o.found, f)
			}
		}
		if file := config.BindPasswordFile; file != "" {
			data := o.referencedFile(d.Field+".bindPasswordFile", file)
			d.BindPassword = strings.TrimRight(string(data), " \t\r\n")
			if data != nil && d.BindPassword == "" {
				o.report(problem{field: d.Field + ".bindPasswordFile", message: fmt.Sprintf("%q is empty", strict.Cut(file, 200))})
			}
		}
		c.Directories = append(c.Directories, d)
	}
	for i := range c.Authn.Configuration.JWT.Issuers {
		o.readGroupSources(i, &c.Authn.Configuration.JWT.Issuers[i])
	}
	if v.Login == nil {
		return
	}
	for i, key := range v.Login.Keys {
		field := fmt.Sprintf("login.keys[%d].file", i)
		k := authn.LoginKey{Name: key.Name}
		if key.File == "" {
			o.report(problem{field: field, message: "is missing", hint: "gatehouse token key --out FILE makes one"})
		} else if data := o.referencedFile(field, key.File); data != nil {
			secret, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
			if err != nil {
				o.report(problem{field: field, message: fmt.Sprintf("%q is not base64", strict.Cut(key.File, 200)), hint: "gatehouse token key --out FILE makes one"})
			} else {
				k.Secret = append([]byte{}, secret...)
			}
		}
		c.Authn.LoginKeys = append(c.Authn.LoginKeys, k)
	}
}

// readGroupSources reads the files that the group sources of an issuer name.
func (o *object) readGroupSources(index int, issuer *v1alpha1.JWTIssuer) {
	for i := range issuer.GroupSources {
		s := GroupSource{Issuer: issuer.URL, Config: &issuer.GroupSources[i]}
		path := fmt.Sprintf("jwt.issuers[%d].groupSources[%d]", index, i)
		read := func(field, name string) []byte {
			if name == "" {
				return nil
			}
			data := o.referencedFile(joinField(path, field), name)
			trimmed := bytes.TrimRight(data, " \t\r\n")
			if data != nil && (len(trimmed) == 0 || bytes.ContainsAny(trimmed, "\x00") || field != "http.clientCertificateFile" && field != "http.clientKeyFile" && bytes.ContainsAny(trimmed, "\r\n")) {
				o.report(problem{field: joinField(path, field), message: fmt.Sprintf("%q is empty, or has more than one line", strict.Cut(name, 200))})
			}
			return trimmed
		}
		switch c := s.Config; {
		case c.Graph != nil:
			s.Secret = read("graph.clientSecretFile", c.Graph.ClientSecretFile)
		case c.HTTP != nil:
			s.Secret = read("http.tokenFile", c.HTTP.TokenFile)
			s.Certificate = read("http.clientCertificateFile", c.HTTP.ClientCertificateFile)
			s.Key = read("http.clientKeyFile", c.HTTP.ClientKeyFile)
			if len(s.Certificate) > 0 && len(s.Key) > 0 {
				if _, err := tls.X509KeyPair(s.Certificate, s.Key); err != nil {
					o.report(problem{field: joinField(path, "http.clientKeyFile"), message: fmt.Sprintf("%q is not the key of clientCertificateFile: %v", strict.Cut(c.HTTP.ClientKeyFile, 200), err)})
				}
			}
		case c.LDAP != nil:
			for _, d := range o.config.Directories {
				if d.Config.Name == c.LDAP.Directory {
					s.Prefix = d.Config.GroupsPrefix
				}
			}
		}
		if given := s.Config.GroupsPrefix; given != nil {
			s.Prefix = *given
		}
		o.config.GroupSources = append(o.config.GroupSources, s)
	}
}

// referencedFile returns the content of a file that the document names. It returns nil and
// reports an error if the file cannot be read.
func (o *object) referencedFile(field, name string) []byte {
	file := o.tree.findReferencedFile(o.file, name)
	switch {
	case file.problem != "" && file.unseen && mayBeSecret(name):
		// Not even why: a system's error may be about its length or its bytes.
		o.report(problem{
			field: field, message: fmt.Sprintf("is not the path of an existing file; its %d bytes are not shown, because they may be a secret", len(name)),
			hint: "write the path of a file, relative to the directory of the document, not its contents; if this is a secret, replace it",
		})
		return nil
	case file.problem != "":
		o.report(problem{
			field: field, message: fmt.Sprintf("%q cannot be read: %s", strict.Cut(name, 200), file.problem),
			hint: "the path is relative to the directory of the document",
		})
		return nil
	case file.data == nil:
		return []byte{}
	default:
		return file.data
	}
}

// mayBeSecret reports whether a text that should be the path of a file may be what
// the file should hold: it does not look like a path, or it is the base64 of 16
// bytes or more, which a few paths are, too.
func mayBeSecret(text string) bool {
	const inPaths = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/.-_"
	if strings.Trim(text, inPaths) != "" || !strings.ContainsAny(text, "/.") {
		return true
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if data, err := encoding.DecodeString(strings.TrimRight(text, "=")); err == nil && len(data) >= 16 {
			return true
		}
	}
	return false
}

// authenticateUpstream reads upstream's AuthenticationConfiguration as the API server
// does: every version, strictly, with its defaults. The fields are validated when they are
// compiled.
func (o *object) authenticateUpstream() {
	raw, err := json.Marshal(o.fields)
	if err != nil {
		o.report(problem{message: err.Error()})
		return
	}
	decoded, err := runtime.Decode(upstreamDecoder(), raw)
	if err != nil {
		o.notUpstream(err)
		return
	}
	c, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		o.report(problem{message: fmt.Sprintf("is a %T", decoded)})
		return
	}
	if len(c.JWT) == 0 {
		o.warn(problem{field: "jwt", message: "has no issuer, so the document has no effect"})
	}
	if c.Anonymous != nil {
		o.warn(problem{field: "anonymous", message: "is an option of kube-apiserver and has no effect here"})
	}
	const most = 64 // as upstream
	if len(c.JWT) > most {
		o.report(problem{field: "jwt", message: fmt.Sprintf("has %d issuers, more than %d", len(c.JWT), most)})
	}
	for i := range c.JWT {
		o.config.Authn.Issuers = append(o.config.Authn.Issuers, authn.Issuer{Source: o.source, Field: fmt.Sprintf("jwt[%d]", i), Config: &c.JWT[i]})
	}
}

// notUpstream reports why upstream's decoder does not take a document.
func (o *object) notUpstream(err error) {
	const hint = "the document has kube-apiserver's format: see AuthenticationConfiguration in the Kubernetes documentation"
	if strictErr, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strictErr.Errors() {
			o.report(problem{message: strict.Printable(e.Error()), hint: hint})
		}
		return
	}
	if runtime.IsNotRegisteredError(err) {
		o.report(problem{
			field: "apiVersion", message: fmt.Sprintf("%q is not a supported version of AuthenticationConfiguration", strict.Cut(fmt.Sprint(o.fields["apiVersion"]), 60)),
			hint: "write apiserver.config.k8s.io/v1",
		})
		return
	}
	for _, e := range utilerrors.Flatten(utilerrors.NewAggregate([]error{err})).Errors() {
		o.report(problem{message: strict.Printable(e.Error()), hint: hint})
	}
}

// upstreamDecoder is the API server's decoder of its configuration.
//
//nolint:gochecknoglobals // made once, and immutable
var upstreamDecoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
})

// staticKeys gives issuers the keys that our configuration names a file of. The
// two documents may come in any order.
func (d *decoder) staticKeys() {
	spec := &d.config.Authn
	if spec.Configuration == nil {
		return
	}
	for i, named := range spec.Configuration.JWT.Issuers {
		if named.KeysFile == "" {
			continue
		}
		file, _, _ := strings.Cut(spec.Configuration.Source, "#")
		o := object{decoder: d, source: spec.Configuration.Source, label: authenticationConfiguration, file: file}
		field := fmt.Sprintf("jwt.issuers[%d].keysFile", i)
		data := o.referencedFile(field, named.KeysFile)
		if data == nil {
			continue
		}
		keys, err := jwt.ParseKeySet(data)
		if err != nil {
			o.report(problem{
				field: field, message: fmt.Sprintf("%q is not a valid JSON Web Key Set: %s", strict.Cut(named.KeysFile, 200), err),
				hint: "save the document at the jwks_uri of the issuer's discovery document",
			})
			continue
		}
		for j := range spec.Issuers {
			if spec.Issuers[j].Config.Issuer.URL == named.URL {
				spec.Issuers[j].Keys = keys
			}
		}
	}
}

// joinField is a path below another.
func joinField(parent, field string) string {
	if field == "" {
		return parent
	}
	return parent + "." + field
}
