package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stored is where and how kube-apiserver keeps the objects of a resource in
// etcd.
type stored struct {
	// prefix is the path of the collection below /registry.
	prefix string
	// version is the version that objects are written in.
	version schema.GroupVersion
}

// The entries of Kubernetes' own test of its storage paths: a resource, the
// path of an example, and the stored kind where it is another than the one
// that was written.
var (
	storedEntry = regexp.MustCompile(`(?s)\n\t\tgvr\("([^"]*)", "([^"]*)", "([^"]*)"\): \{(.*?)\n\t\t\},`)
	storedPath  = regexp.MustCompile(`ExpectedEtcdPath:\s+"/registry/([^"]*)"( \+ namespace)?`)
	storedKind  = regexp.MustCompile(`ExpectedGVK:\s+gvkP\("([^"]*)", "([^"]*)", "[^"]*"\)`)
	jsonCodec   = regexp.MustCompile(`StorageConfig\.Codec = \w+\.Codecs\.LegacyCodec\(`)
)

// readStorage reads where every resource is stored.
func readStorage(root string) (map[schema.GroupVersionResource]stored, error) {
	text, err := os.ReadFile(filepath.Join(root, "test/integration/etcd/data.go"))
	if err != nil {
		return nil, err
	}
	result := map[schema.GroupVersionResource]stored{}
	for _, entry := range storedEntry.FindAllStringSubmatch(string(text), -1) {
		gvr := schema.GroupVersionResource{Group: entry[1], Version: entry[2], Resource: entry[3]}
		path := storedPath.FindStringSubmatch(entry[4])
		if path == nil {
			return nil, fmt.Errorf("%s has no path in etcd", gvr)
		}
		found := stored{prefix: strings.TrimSuffix(path[1], "/"), version: gvr.GroupVersion()}
		if path[2] == "" {
			// The name of an object of the cluster is the last segment.
			found.prefix = path[1][:strings.LastIndex(path[1], "/")]
		}
		if kind := storedKind.FindStringSubmatch(entry[4]); kind != nil {
			found.version = schema.GroupVersion{Group: kind[1], Version: kind[2]}
		}
		result[gvr] = found
	}
	if len(result) < 60 {
		return nil, fmt.Errorf("only %d storage paths found: has the file another form now?", len(result))
	}
	return result, nil
}

// readJSONGroups tells which groups are stored as JSON: the servers of custom
// resources and of APIServices set a codec of their own, all others use
// protobuf.
func readJSONGroups(root string) ([]string, error) {
	var groups []string
	for file, group := range map[string]string{
		"apiextensions.go": "apiextensions.k8s.io",
		"aggregator.go":    "apiregistration.k8s.io",
	} {
		text, err := os.ReadFile(filepath.Join(root, "pkg/controlplane/apiserver", file))
		if err != nil {
			return nil, err
		}
		if jsonCodec.Match(text) {
			groups = append(groups, group)
		}
	}
	return groups, nil
}

// columns are the prefix, the version and the encoding of a resource, or
// dashes if its objects are not stored.
func (d *discovered) columns(group, version string, r *apiResource) string {
	if !slices.Contains(r.Verbs, "create") || !slices.Contains(r.Verbs, "get") {
		return "- - -"
	}
	found, ok := d.storage[schema.GroupVersionResource{Group: group, Version: version, Resource: r.Name}]
	if !ok {
		// The rule for what the test does not write.
		found = stored{prefix: r.Name, version: schema.GroupVersion{Group: group, Version: version}}
	}
	encoding := "protobuf"
	if slices.Contains(d.jsonGroups, group) {
		encoding = "json"
	}
	return fmt.Sprintf("%s %s %s", found.prefix, found.version, encoding)
}
