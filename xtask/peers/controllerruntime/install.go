package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpoint is where the manager serves its webhooks, and the certificate that it shows.
type endpoint struct {
	folder string
	port   int
	bundle []byte
}

// newEndpoint signs a certificate by its own key, as managers do that have no cert-manager.
func newEndpoint(folder string) (*endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "controllerruntime"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return &endpoint{folder, port, bundle}, first(
		os.WriteFile(filepath.Join(folder, "tls.crt"), bundle, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), secret, 0o600),
	)
}

func (e *endpoint) url(path string) *string {
	return pointer("https://127.0.0.1:" + strconv.Itoa(e.port) + path)
}

// definition is the CRD in two versions, which a webhook converts.
func (e *endpoint) definition() *extensions.CustomResourceDefinition {
	text := extensions.JSONSchemaProps{Type: "string"}
	version := func(name string, stored bool, fields map[string]extensions.JSONSchemaProps) extensions.CustomResourceDefinitionVersion {
		return extensions.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Subresources: &extensions.CustomResourceSubresources{Status: &extensions.CustomResourceSubresourceStatus{}},
			Schema: &extensions.CustomResourceValidation{OpenAPIV3Schema: &extensions.JSONSchemaProps{
				Type: "object",
				Properties: map[string]extensions.JSONSchemaProps{
					"spec":   {Type: "object", Properties: fields},
					"status": {Type: "object", XPreserveUnknownFields: pointer(true)},
				},
			}},
		}
	}
	rows := extensions.JSONSchemaProps{Type: "integer", Format: "int32", Minimum: pointer(0.0), Maximum: pointer(100.0)}
	return &extensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gardens." + group},
		Spec: extensions.CustomResourceDefinitionSpec{
			Group: group,
			Names: extensions.CustomResourceDefinitionNames{Plural: "gardens", Singular: "garden", Kind: "Garden", ListKind: "GardenList"},
			Scope: extensions.NamespaceScoped,
			Versions: []extensions.CustomResourceDefinitionVersion{
				version("v1", true, map[string]extensions.JSONSchemaProps{"plant": text, "rows": rows}),
				version("v1beta1", false, map[string]extensions.JSONSchemaProps{"plant": text, "rowCount": text}),
			},
			Conversion: &extensions.CustomResourceConversion{
				Strategy: extensions.WebhookConverter,
				Webhook: &extensions.WebhookConversion{
					ConversionReviewVersions: []string{"v1"},
					ClientConfig:             &extensions.WebhookClientConfig{URL: e.url("/convert"), CABundle: e.bundle},
				},
			},
		},
	}
}

// configurations register both admission webhooks for both versions; they are asked in the stored one.
func (e *endpoint) configurations() []client.Object {
	rules := func(operations ...admission.OperationType) []admission.RuleWithOperations {
		return []admission.RuleWithOperations{{
			Operations: operations,
			Rule:       admission.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"gardens"}},
		}}
	}
	none := pointer(admission.SideEffectClassNone)
	at := func(path string) admission.WebhookClientConfig {
		return admission.WebhookClientConfig{URL: e.url(path + "-gardens-example-org-v1-garden"), CABundle: e.bundle}
	}
	return []client.Object{
		&admission.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: group},
			Webhooks: []admission.MutatingWebhook{{
				Name: "default." + group, ClientConfig: at("/mutate"), SideEffects: none,
				AdmissionReviewVersions: []string{"v1"}, Rules: rules(admission.Create, admission.Update),
			}},
		},
		&admission.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: group},
			Webhooks: []admission.ValidatingWebhook{{
				Name: "validate." + group, ClientConfig: at("/validate"), SideEffects: none,
				AdmissionReviewVersions: []string{"v1"},
				Rules:                   rules(admission.Create, admission.Update, admission.Delete),
			}},
		},
	}
}

func pointer[T any](value T) *T { return &value }

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
