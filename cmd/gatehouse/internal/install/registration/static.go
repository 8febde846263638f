package registration

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// staticSuffix ends the name of each webhook configuration that kube-apiserver reads from a
// file (KEP-5793). Its API rejects objects with such names.
const staticSuffix = ".static.k8s.io"

// StaticPlugin is an admission plugin of kube-apiserver that reads webhook configurations
// from a directory. It accepts one kind there and no other, so that each plugin has its own.
type StaticPlugin string

// The plugins.
const (
	StaticMutating   StaticPlugin = "mutating"
	StaticValidating StaticPlugin = "validating"
)

// pluginName returns the name of the plugin in an AdmissionConfiguration.
func (p StaticPlugin) pluginName() string {
	if p == StaticMutating {
		return "MutatingAdmissionWebhook"
	}
	return "ValidatingAdmissionWebhook"
}

// staticPlugin returns the plugin that reads a document, "" if none does.
func (d Document) staticPlugin() StaticPlugin {
	switch d.object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return StaticMutating
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return StaticValidating
	default:
		return ""
	}
}

// staticDir returns the directory of a plugin on the hosts of kube-apiserver.
func (o *Options) staticDir(plugin StaticPlugin) string {
	return "/etc/kubernetes/" + o.Name + "/" + string(plugin)
}

// asFile returns a webhook configuration as a file for kube-apiserver. The comment belongs
// to the document: kube-apiserver takes a comment in front of a "---" for a document, and
// does not start with it.
func (o *Options) asFile(d Document) Document {
	d.comment = fmt.Sprintf(`This is not an object of the API: save it as
  %s/%s.yaml
on each host of kube-apiserver. That directory may have nothing but files with objects of
this kind. kube-apiserver reads them when it starts, which fails if one is invalid, and
changes within a minute. kubectl cannot change or delete this: if Gatehouse keeps you from
repairing it, move the file to another directory.

%s`, o.staticDir(d.staticPlugin()), o.Name, d.comment)
	return d
}

// OnlyStatic returns the documents that a plugin reads.
func OnlyStatic(documents []Document, plugin StaticPlugin) []Document {
	var some []Document
	for _, d := range documents {
		if d.staticPlugin() == plugin {
			some = append(some, d)
		}
	}
	return some
}

// StaticConfiguration returns the file for kube-apiserver's --admission-control-config-file
// that names the directories of the documents. The options are those of the documents.
func StaticConfiguration(o Options, documents []Document) Document {
	path := "/etc/kubernetes/" + o.Name + "/" + admissionFile
	var plugins []any
	for _, plugin := range []StaticPlugin{StaticMutating, StaticValidating} {
		if len(OnlyStatic(documents, plugin)) > 0 {
			plugins = append(plugins, webhookPlugin(plugin.pluginName(), "staticManifestsDir", o.staticDir(plugin)))
		}
	}
	return Document{
		comment: fmt.Sprintf(`This is not an object of the API: save it as
  %s
on each host of kube-apiserver, with the directories that it names, and only then start
kube-apiserver with
  --admission-control-config-file=%[1]s
and, in Kubernetes 1.36,
  --feature-gates=ManifestBasedAdmissionControlConfig=true
It does not start without the directories, and reads this file once. There is one such
file: where the flag is set already, add staticManifestsDir to the plugins of that file.`, path),
		object: map[string]any{"apiVersion": admissionConfigurationVersion, "kind": "AdmissionConfiguration", "plugins": plugins},
	}
}
