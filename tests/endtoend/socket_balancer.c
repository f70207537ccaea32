/* A socket load balancer, as Cilium has one in kube-proxy's place: it rewrites the destination of connect(), before
 * netfilter sees a packet. TRANSLATIONS is {address, port, backend's address, its port}, ..., all as the host counts. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

static const struct {
	__u32 address, port, to, to_port;
} translations[] = {TRANSLATIONS};

SEC("cgroup/connect4")
int rewrite(struct bpf_sock_addr *ctx)
{
#pragma unroll
	for (int i = 0; i < sizeof(translations) / sizeof(translations[0]); i++) {
		if (ctx->user_ip4 == bpf_htonl(translations[i].address) &&
		    ctx->user_port == bpf_htons(translations[i].port)) {
			ctx->user_ip4 = bpf_htonl(translations[i].to);
			ctx->user_port = bpf_htons(translations[i].to_port);
			break;
		}
	}
	return 1;
}

char _license[] SEC("license") = "GPL";
