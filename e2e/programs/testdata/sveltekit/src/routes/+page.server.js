export const load = ({ url, getClientAddress }) => ({ name: url.searchParams.get('name') ?? 'nobody', address: getClientAddress() })
export const actions = { default: async ({ request }) => ({ said: (await request.formData()).get('said') }) }
