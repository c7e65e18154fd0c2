export async function POST(request) {
  return Response.json({ got: (await request.text()).length })
}
